"""Sketches, the graphs of results, tapes, programs, `Value`s and compiled steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from tapegraph.compiling.compiled import Compiled, Latest, latest
from tapegraph.errors import kind_of, message
from tapegraph.pytree import named
from tapegraph.recording import op as ops
from tapegraph.recording.linearize import linearize
from tapegraph.recording.node import Node, tape_entry
from tapegraph.recording.program import Program, Recording
from tapegraph.recording.scopes import recorder
from tapegraph.recording.tape import Tape, read_gradient
from tapegraph.recording.values import is_remote
from tapegraph.tensors.value import Value

# The kinds of vertices: an operation, a result of several backwards, or a kind of leaf.
Kind: TypeAlias = Literal["operation", "gradient", "param", "constant", "input", "state", "number"]
_KINDS: dict[ops.Op, Kind] = {ops.INPUT: "input", ops.PARAM: "param", ops.SCALAR: "number"}
# A value or gradient of at most so many numbers is shown.
_SMALL = 4
_EXPECTED = "a tensor, a Value, a list of them, a tape, a program or a compiled step"


@dataclass
class Vertex:
    """One operation or leaf."""

    kind: Kind
    op: str
    inputs: tuple[int, ...] = ()  # their places in the sketch, before this one
    name: str = ""
    shape: tuple[int, ...] | None = None  # of a `Value` None
    dtype: str = ""
    value: Any = None  # a number or a small array
    gradient: Any = None
    norm: float | None = None  # of a gradient that is too large to show
    attrs: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    function: str = ""  # the user's, that recorded it
    source: int | None = None  # of a gradient: the vertex that it belongs to
    writes: str = ""  # the state that takes the result when the step ends
    is_result: bool = False

    @property
    def is_leaf(self) -> bool:
        return self.kind not in ("operation", "gradient")

    @property
    def type(self) -> str:
        """Dtype and shape as text, such as ``float32 (3, 4)``."""
        return "" if self.shape is None else f"{self.dtype} {self.shape}"


@dataclass
class Sketch:
    """Vertices, each after those that it reads, and the picture's title and remarks."""

    vertices: list[Vertex]
    title: str
    facts: list[str] = field(default_factory=list)
    is_step: bool = False  # drawn in regions: forward, backward and update
    of_numbers: bool = False  # its vertices are `Value`s

    def readers(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.vertices]
        for i, vertex in enumerate(self.vertices):
            for x in dict.fromkeys(vertex.inputs):
                found[x].append(i)
        return found


def sketch(what: Any, names: Any) -> Sketch:
    recorder().outside("draw", "Draw the step itself, outside: tg.draw(step).")
    known = _names(names)
    if isinstance(what, Compiled):
        return _of_compiled(what, known)
    if isinstance(what, Tape):
        return _of_recording(what.recording(), known, "the tape")
    if isinstance(what, Program):
        return _of_program(what)
    roots = list(what) if isinstance(what, (list, tuple)) else [what]
    if roots and all(isinstance(root, Value) for root in roots):
        return _of_values(roots, known)
    if not roots or not all(isinstance(root, Node) for root in roots):
        hint = "Draw the result of an operation on it."
        hint = "Draw its .primal." if hasattr(what, "primal") else hint
        raise TypeError(message("draw", kind_of(what), _EXPECTED, hint))
    for root in roots:
        if tape_entry(root)._op is ops.CLEARED:
            received = f"a result of shape {root.shape} that tape_reset() has cleared"
            fix = "Draw before tape_reset(), or run the forward again."
            raise RuntimeError(message("draw", received, "a recorded one", fix))
    return _of_recording(linearize(roots), known, _title(roots, known))


def _names(names: object) -> dict[int, str]:
    if names is None:
        return {}
    if isinstance(names, Mapping) or not isinstance(names, (str, Node, Value)):
        found = named("draw", names, (Node, Value))
        if found or not names:
            return {id(tape_entry(x) if isinstance(x, Node) else x): n for n, x in reversed(found)}
    expected = "a dict of names to tensors or Values, or a model"
    raise TypeError(message("draw", f"{kind_of(names)} for 'names'", expected))


def _text(known: Mapping[int, str], node: object) -> str:
    node = tape_entry(node) if isinstance(node, Node) else node
    return known.get(id(node)) or getattr(node, "name", None) or getattr(node, "label", "") or ""


def _title(roots: Sequence[Any], known: Mapping[int, str]) -> str:
    return ", ".join(_text(known, root) or f"result of {root.op}" for root in roots[:3])


def _small(value: object) -> Any:
    """Return a number, or a short array of at most one axis; None for any other."""
    if isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, np.ndarray) and value.ndim <= 1 and 0 < value.size <= _SMALL:
        return value.tolist()
    return None


def _value(recording: Recording, slot: int) -> Any:
    """Return the `_small` value of a slot; None if the leaf has changed since."""
    value = recording.values[slot]
    if isinstance(value, Node) and value.ndim <= 1 and value.size <= _SMALL:
        try:
            value = recording.value(slot)
        except RuntimeError:
            return None
    return _small(value)


# Tensors, and programs of tensors


def _of_recording(recording: Recording, known: dict[int, str], title: str) -> Sketch:
    sketch = _of_program(recording.program)
    sketch.title = title
    for slot, node in enumerate(recording.nodes):
        vertex = sketch.vertices[slot]
        vertex.value = _value(recording, slot)
        if node is None:
            continue
        vertex.name = _text(known, node)
        vertex.where = recording.where(slot)
        vertex.function = _function(node)
        gradient = read_gradient(node) if isinstance(node, Node) else None
        if isinstance(gradient, np.ndarray) and gradient.size:
            vertex.gradient = _small(gradient)
            if vertex.gradient is None:
                vertex.norm = float(np.linalg.norm(gradient))
    return sketch


def _of_program(program: Program) -> Sketch:
    vertices = []
    for slot, op in enumerate(program.ops):
        inputs = program.inputs[slot]
        vertex = Vertex("operation" if inputs else _KINDS.get(op, "constant"), op.name, inputs)
        if op is ops.GRADIENT:
            vertex.kind, vertex.source = "gradient", inputs[1]
            vertex.inputs = program.backward_of(slot)
        vertex.shape, vertex.dtype = program.shapes[slot], str(program.dtypes[slot])
        vertex.attrs = program.attrs[slot]
        vertices.append(vertex)
    for slot in program.outputs:
        vertices[slot].is_result = True
    return Sketch(vertices, "a program")


def _function(node: object) -> str:
    """Return the name of the user's function that recorded a node; ``""`` for module code."""
    code = getattr(node, "_code", None)
    whole = getattr(code, "co_qualname", getattr(code, "co_name", ""))  # Python 3.10 has the latter
    parts = ["", *(part for part in whole.split(".") if not part.startswith("<"))]
    # A layer is known by its class.
    return parts[-2 if parts[-1] in ("__call__", "forward") and len(parts) > 2 else -1]


# Values


def _of_values(roots: Sequence[Value], known: dict[int, str]) -> Sketch:
    found = _in_order(roots)
    place = {id(value): i for i, value in enumerate(found)}
    touched = any(value.grad for value in found)  # a gradient of 0 says nothing before a backward
    vertices = [
        Vertex(
            "operation" if value.args else "param",  # a number that was an operand is one too
            value.op if value.args else "value",
            tuple(place[id(x)] for x in value.args),
            name=_text(known, value),
            value=value.data,
            gradient=value.grad if touched else None,
        )
        for value in found
    ]
    for root in roots:
        vertices[place[id(root)]].is_result = True
    return Sketch(vertices, _title(roots, known), of_numbers=True)


def _in_order(roots: Sequence[Value]) -> list[Value]:
    """Return all that some Values were computed from, each after its operands."""
    found: dict[int, Value] = {}
    pending = [*reversed(roots)]
    while pending:
        value = pending[-1]
        missing = [x for x in value.args if id(x) not in found]
        if missing:
            pending += reversed(missing)
        else:
            found[id(value)] = pending.pop()
    return list(found.values())


# Compiled steps


def _of_compiled(step: Compiled, known: dict[int, str]) -> Sketch:
    last = latest(step)
    if last is None:
        fix = "Call it first, then draw it."
        raise RuntimeError(message("draw", "a step that has not been called", "a trace", fix))
    trace = last.trace
    program = trace.recording.program
    sketch = _of_recording(trace.recording, {}, step.__name__)
    sketch.is_step = True
    sketch.facts = _facts(last)
    for slot, vertex in enumerate(sketch.vertices):
        vertex.is_result = slot in program.outputs[: trace.count]
    for slot, node in trace.state.items():
        vertex = sketch.vertices[slot]
        vertex.name = _text(known, node)
        remote = is_remote(node)  # which is not fetched
        vertex.value = None if remote else _small(node._array)
        if not node._requires_grad:  # its numbers are those of one moment, and no constants
            vertex.kind, vertex.op, vertex.value = "state", "state", None
    for slot in trace.sources:
        vertex, position = sketch.vertices[slot], trace.arguments.get(slot)
        vertex.attrs = {}
        if position is None:  # a learning rate, or a number computed from floats
            vertex.kind, vertex.op = "state", "number" if vertex.shape == () else "numbers"
        elif position < len(last.names):
            vertex.name = last.names[position]
    for update in program.updates:
        leaf = sketch.vertices[update.leaf]
        sketch.vertices[update.slot].writes = leaf.name or leaf.op
    return sketch


def _facts(last: Latest) -> list[str]:
    trace, programs = last.trace, last.programs
    program = trace.recording.program
    state = f"{len(trace.state)} tensors of state, {len(program.updates)} of them updated"
    facts = [last.text, f"{len(program)} entries, {state}"]
    if programs is None:
        return [*facts, "recorded once; compiled in its second call"]
    nbytes = programs.native.nbytes + sum(part.nbytes for part in trace.levels)
    unit = min(int(math.log(max(nbytes, 1), 1000)), 3)
    size = f"{nbytes / 1000**unit:.3g} {('bytes', 'kB', 'MB', 'GB')[unit]}"
    compiled = f"{size} of native buffers, compiled in {programs.seconds:.2g} s"
    return [*facts, f"engine: {programs.ran or 'none yet'}", compiled]

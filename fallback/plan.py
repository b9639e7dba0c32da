"""A program recorded whole as straight-line NumPy: one call a line, in the order of the program.

The plan is made by running it once on the recorded values: what has to be summed back or converted
is found then, and the lines say so. It computes bit for bit what the eager engine does.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.fallback.rules import VJPS, Joint
from tapegraph.fallback.sweep import gradients, unbroadcast
from tapegraph.recording.op import GRADIENT, SCALAR
from tapegraph.recording.program import Program
from tapegraph.recording.recorded import Recording


class Plan:
    """A function of the values of a program's leaves, as readable Python.

    Attributes
    ----------
    source : str
        Its text.
    leaves : list of int
        The slots whose values it takes, in order: all but Python numbers.
    """

    def __init__(self, recording: Recording) -> None:
        writer = _Writer(recording)
        writer.write()
        self.leaves = writer.leaves
        self.source = writer.text()
        names: dict[str, Any] = writer.names
        exec(compile(self.source, "<tapegraph plan>", "exec"), names)
        self._run: Callable[..., Any] = names["plan"]

    def run(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return the outputs, and the new values of the state that changes."""
        with np.errstate(all="ignore"):
            return self._run(*values)  # type: ignore[no-any-return]


class _Writer:
    """Writes the lines of a plan, running each on the recorded values."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.program: Program = recording.program
        self.values: list[Any] = [None] * len(self.program)
        self.saved: dict[int, Any] = {}
        self.lines: list[tuple[str, str]] = []  # the statement, and the user's line
        self.names: dict[str, Any] = {"np": np}
        self.leaves: list[int] = []
        self.last_read: dict[str, int] = {}
        self._known: dict[int, str] = {}
        self._gradients: dict[tuple[int, ...], dict[int, str]] = {}

    # Text

    def text(self) -> str:
        """Return the plan as a function, each value dropped after its last reader."""
        program = self.program
        slots = [*program.outputs, *(update.slot for update in program.updates)]
        kept = {f"v{slot}" for slot in slots}
        held = {id(value) for value in self.names.values()}
        # What the plan holds, such as a seed of ones, is never handed out.
        texts = [f"v{s}.copy()" if id(self.values[s]) in held else f"v{s}" for s in slots]
        results, updates = texts[: len(program.outputs)], texts[len(program.outputs) :]
        dropped: dict[int, list[str]] = {}
        for name, line in self.last_read.items():
            if name not in kept:
                dropped.setdefault(line, []).append(name)
        parameters = ", ".join(f"v{slot}" for slot in self.leaves)
        body = [f"def plan({parameters}):"]
        for number, (statement, place) in enumerate(self.lines):
            comment = f"  # {place}" if place else ""
            body.append("\n".join(f"    {part}" for part in statement.split("\n")) + comment)
            if number in dropped:
                body.append(f"    del {', '.join(sorted(dropped[number]))}")
        body.append(f"    return [{', '.join(results)}], [{', '.join(updates)}]")
        return "\n".join(body) + "\n"

    def line(self, statement: str, reads: list[str], place: str = "") -> None:
        """Add a statement, which reads some values."""
        for name in reads:
            self.last_read[name] = len(self.lines)
        self.lines.append((statement, place))

    def known(self, value: Any, hint: str) -> str:
        """Return the name of something that the plan holds."""
        name = self._known.get(id(value))
        if name is None:
            hint = f"{hint}_" if keyword.iskeyword(hint) else hint
            name = hint if hint not in self.names else f"{hint}_{len(self.names)}"
            self.names[name] = value
            self._known[id(value)] = name
        return name

    def operands(self, slots: tuple[int, ...]) -> tuple[list[str], list[str]]:
        """Return how a call names its operands, and which of them are values."""
        texts, reads = [], []
        for slot in slots:
            if self.program.ops[slot] is SCALAR:
                texts.append(self.known(self.values[slot], f"c{slot}"))
            else:
                texts.append(f"v{slot}")
                reads.append(f"v{slot}")
        return texts, reads

    def options(self, slot: int) -> str:
        """Return the attributes of a call."""
        attrs = self.program.attrs[slot]
        return "".join(f", {k}={self._literal(k, v)}" for k, v in attrs.items())

    def _literal(self, key: str, value: Any) -> str:
        text = repr(value)
        simple = isinstance(value, (bool, int, str, tuple, type(None)))
        return (
            text if simple and "nan" not in text and "inf" not in text else self.known(value, key)
        )

    # Forward

    def write(self) -> None:
        """Write every slot."""
        program, given = self.program, self.recording.values
        with np.errstate(all="ignore"):
            for slot, op in enumerate(program.ops):
                if op is SCALAR:
                    self.values[slot] = given[slot]
                elif not program.inputs[slot]:
                    self.values[slot] = given[slot]
                    self.leaves.append(slot)
                elif op is GRADIENT:
                    self._gradient(slot)
                else:
                    self._call(slot)

    def _call(self, slot: int) -> None:
        program = self.program
        op, slots = program.ops[slot], program.inputs[slot]
        arrays = [self.values[i] for i in slots]
        texts, reads = self.operands(slots)
        function = self.known(op.forward, op.name)
        wide = program.dtypes[slot]
        out = op.forward(*arrays, **program.attrs[slot])
        if op.saves:
            out, self.saved[slot] = out
        call = f"{function}({', '.join(texts)}{self.options(slot)})"
        if (
            not op.saves and np.asarray(out).dtype != wide
        ):  # NumPy answers small integers in float16
            texts = [f"np.asarray({text}, {wide.name!r})" for text in texts]
            out = op.forward(*(np.asarray(a, wide) for a in arrays), **program.attrs[slot])
            call = f"{function}({', '.join(texts)}{self.options(slot)})"
        number = type(out) is not np.ndarray  # what NumPy gives of 0-d arrays
        self.values[slot] = np.asarray(out)
        place = self.recording.where(slot)
        if op.saves:
            self.line(f"v{slot}, s{slot} = {call}", reads, place)
            if number:
                self.line(f"v{slot} = np.asarray(v{slot})", [f"v{slot}"])
        else:
            self.line(
                f"v{slot} = np.asarray({call})" if number else f"v{slot} = {call}", reads, place
            )

    # Gradients

    def _gradient(self, slot: int) -> None:
        """Write one gradient: those of one backward are computed together, at the first."""
        y, leaf, *seed = self.program.inputs[slot]
        group = (y, *seed)
        if group not in self._gradients:
            targets = [
                i[1]
                for op, i in zip(self.program.ops, self.program.inputs, strict=True)
                if op is GRADIENT and (i[0], *i[2:]) == group
            ]
            self._gradients[group] = self._backward(y, seed, targets)
        name = self._gradients[group][leaf]
        self.values[slot] = self.values_of[name]
        self.line(f"v{slot} = {name}", [name], self.recording.where(slot))

    def _backward(self, y: int, seed: list[int], targets: list[int]) -> dict[int, str]:
        program = self.program
        flows = self._flows(y, targets)
        self.values_of: dict[str, Any] = getattr(self, "values_of", {})
        suffix = f"_{y}" + "".join(f"_{s}" for s in seed)
        if seed:
            first, cotangent = f"v{seed[0]}", self.values[seed[0]]
        else:
            cotangent = np.ones_like(self.values[y])
            first = self.known(cotangent, f"one{suffix}")
        held: dict[int, tuple[str, Any]] = {y: (first, cotangent)}
        ours: set[int] = set()

        def add(i: int, call: str, part: Any, reads: list[str]) -> None:
            if isinstance(part, RowSparse):
                part, call = part.dense(), f"{call}.dense()"
            shape, dtype = program.shapes[i], program.dtypes[i]
            if part.shape != shape:
                call = f"{self.known(unbroadcast, 'unbroadcast')}({call}, {shape})"
                part = unbroadcast(part, shape)
            if part.dtype != dtype:
                call, part = f"{call}.astype({dtype.name!r})", part.astype(dtype)
            name = f"g{i}{suffix}"
            if i not in held:
                held[i] = (name, part)
                self.line(f"{name} = {call}", reads)
            elif i in ours:
                held[i] = (name, held[i][1] + part)
                self.line(f"{name} += {call}", [*reads, name])
            else:
                before, value = held[i]
                held[i] = (name, value + part)
                ours.add(i)
                self.line(f"{name} = {before} + {call}", [*reads, *_values([before])])

        for slot in range(y, -1, -1):
            if slot not in held or not program.inputs[slot] or slot in targets or not flows[slot]:
                continue
            name, g = held[slot]
            self._rule(slot, name, g, flows, add)
        found = {}
        for target in targets:
            if target not in held:
                zero = np.zeros_like(self.values[target])
                held[target] = (self.known(zero, f"zero{target}"), zero)
            name, value = held[target]
            found[target] = name
            self.values_of[name] = value
        self._strong_zero(y, seed, targets, found, flows)
        return found

    def _flows(self, y: int, targets: list[int]) -> list[bool]:
        """Return through which slots a gradient flows from the result to the targets."""
        program, wanted = self.program, set(targets)
        flows = [False] * (y + 1)
        for slot in range(y + 1):
            flows[slot] = slot in wanted or (
                program.needs[slot]
                and program.ops[slot] is not GRADIENT
                and any(flows[i] for i in program.inputs[slot])
            )
        return flows

    def _rule(
        self, slot: int, name: str, g: Any, flows: list[bool], add: Callable[..., None]
    ) -> None:
        program = self.program
        op, slots, attrs = program.ops[slot], program.inputs[slot], program.attrs[slot]
        row: Any = VJPS.get(op.name)
        if row is None:
            if op.rules is None:
                raise NotImplementedError(
                    f"backward: no gradient rule for {self.recording.describe(slot)}"
                )
            row = Joint(op.rules.vjp)
        arrays, y = [self.values[i] for i in slots], self.values[slot]
        texts, reads = self.operands(slots)
        options = self.options(slot)
        if op.saves:
            attrs = {**attrs, "saved": self.saved[slot]}
            options += f", saved=s{slot}"
            reads.append(f"s{slot}")
        reads = [*reads, f"v{slot}", *_values([name])]
        given = f"{name}, v{slot}, {', '.join(texts)}{options}"
        if isinstance(row, Joint):
            needed = [flows[i] for i in slots]
            rule = self.known(row.rule, f"{op.name}_vjp")
            parts = row.rule(needed, g, y, *arrays, **attrs)
            target = f"parts{slot}"
            self.line(f"{target} = {rule}({needed}, {given})", reads)
            for position, (i, wanted, part) in enumerate(zip(slots, needed, parts, strict=False)):
                if wanted and part is not None:
                    add(i, f"{target}[{position}]", part, [target])
            return
        for position, (i, rule) in enumerate(zip(slots, row, strict=False)):
            if flows[i] and rule is not None:
                called = self.known(rule, f"{op.name}_vjp{position}")
                add(i, f"{called}({given})", rule(g, y, *arrays, **attrs), reads)

    def _strong_zero(
        self, y: int, seed: list[int], targets: list[int], found: dict[int, str], flows: list[bool]
    ) -> None:
        """Write the second look at a NaN, which may be 0 * inf: zero cotangents absorb then."""
        program = self.program
        region = Program(
            program.ops[: y + 1],
            program.inputs[: y + 1],
            program.attrs[: y + 1],
            program.shapes[: y + 1],
            program.dtypes[: y + 1],
            flows,
            [slot for slot in program.leaves if slot <= y],
            (y,),
            targets,
        )
        for slot in targets:
            region.inputs[slot] = ()
        saved = [f"s{slot}" for slot in self.saved if slot <= y and flows[slot]]
        read = sorted(
            {s for slot in range(y + 1) if flows[slot] for s in (slot, *program.inputs[slot])}
        )
        known = {s: self.values[s] for s in read if program.ops[s] is SCALAR}
        arrays = [s for s in read if s not in known]
        again = self.known(_Again(region, known), f"strong_zero_{y}")
        values = ", ".join(f"{s}: v{s}" for s in arrays)
        kept = ", ".join(f"{name[1:]}: {name}" for name in saved)
        cotangent = f"v{seed[0]}" if seed else f"one_{y}"
        names = list(found.values())
        checked = [n for n in names if not n.startswith("zero")]
        if not checked:
            return
        look = self.known(has_nan, "has_nan")
        test = " or ".join(f"{look}({name})" for name in checked)
        reads = [*checked, *(f"v{s}" for s in arrays), *saved]
        if seed:
            reads.append(f"v{seed[0]}")
        self.line(
            f"if {test}:\n    {', '.join(names)}, = {again}({{{values}}}, {{{kept}}}, {cotangent})",
            reads,
        )


class _Again:
    """The sweep over a region of a program, for when a plan has met a NaN."""

    def __init__(self, region: Program, known: Mapping[int, Any]) -> None:
        self._region = region
        self._known = known

    def __call__(self, values: dict[int, Any], saved: dict[int, Any], seed: Any) -> list[Any]:
        every = {**values, **self._known}
        held = [every.get(slot) for slot in range(len(self._region))]
        return [
            g.dense() if isinstance(g, RowSparse) else g
            for g in gradients(_Values(self._region, held, saved), [seed])
        ]


class _Values(Recording):
    """A recording without recorded objects."""

    __slots__ = ("_kept",)

    def __init__(self, program: Program, values: list[Any], kept: dict[int, Any]) -> None:
        super().__init__(program, values, [None] * len(values))
        self._kept = kept

    def saved(self, slot: int) -> Any:
        return self._kept[slot]


def _values(names: list[str]) -> list[str]:
    """Return the names of values alone: constants of the plan are not dropped."""
    return [name for name in names if not name.startswith(("one", "zero"))]

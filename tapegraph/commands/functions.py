"""The list of NumPy functions that differentiate, for ``docs/numpy.md``."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

import tapegraph as tg
from tapegraph.commands import printed_table
from tapegraph.lowering import GAPS
from tapegraph.recording import numpy_functions
from tapegraph.recording.op import Op
from tapegraph.typed import Fun

HEADER = ("NumPy", "tapegraph", "records", "engine")
_PAGE = """\
# Which NumPy functions differentiate

Call NumPy's functions on tensors as on arrays: they run eagerly, are recorded, and differentiate.
Here is every one that does, the operations that it may record, and the engine that runs its
gradient: *both* is TensorFlow or native, as you choose; a tape that holds an operation without
lowering runs *native*. Typed code should call `tg.*`, as NumPy's stubs know arrays alone.

This page is written by `python -m tapegraph functions --markdown`, here with NumPy {version}.

{functions}

## Methods of ufuncs

`outer` works for each differentiable ufunc of two arrays. These are the functions beside them:

{methods}

## Plain results

These carry no gradient: on tensors they give plain arrays, indices and truth values.

{plain}.

## Native operations, and why

{reasons}

## Nothing is lost in silence

Any other NumPy function of a tensor that needs a gradient raises a `TypeError` that names it; of
constants it gives plain arrays. Compute without a gradient by `tensor.detach().numpy()`, or
register a rule for it with `tg.defop`. Arrays made of tensors, `out=` and assignments to elements
are errors that say what to write instead: see
[what is recorded, and what is refused](recording.md)."""


def page() -> str:
    """Return the page "Which NumPy functions differentiate"."""
    names = _names()
    methods = [
        (f"`{names[called][0]}.{method}`", f"`{names[function][0]}`")
        for (called, method), function in numpy_functions.METHODS.items()
        if function in numpy_functions.COUNTERPARTS
    ]
    plain = sorted(names[f][0] for f in numpy_functions.PLAIN if f in names)
    return _PAGE.format(
        version=".".join(np.__version__.split(".")[:2]),
        functions=printed_table([HEADER, *function_rows()], markdown=True),
        methods=printed_table([("method", "is"), *methods], markdown=True),
        plain=", ".join(f"`{name}`" for name in plain),
        reasons="\n".join(f"- `{op}` {why}." for op, why in sorted(GAPS.items())),
    )


def function_rows() -> list[tuple[str, ...]]:
    """Return one row per recorded function: its names, ours, its operations and the engine."""
    found = []
    for function, names in names_of_functions().items():
        recording = numpy_functions.COUNTERPARTS[function]
        ours = recording.__name__
        public = f"`tg.{ours}`" if callable(getattr(tg, ours, None)) else ""
        operations = sorted(operations_of(recording))
        quoted = ", ".join(f"`{name}`" for name in names)
        found.append((quoted, public, ", ".join(operations), _engine(operations)))
    return sorted(found, key=lambda row: row[0].replace("`", ""))


def names_of_functions() -> dict[Fun, list[str]]:
    """Return the public names of each recorded NumPy function, its own first."""
    names = _names()  # without the ufuncs of other libraries, registered by tg.defop
    return {f: names[f] for f in numpy_functions.COUNTERPARTS if f in names}


@functools.cache
def operations_of(recording: Fun) -> frozenset[str]:
    """Return the names of the operations that a function's code refers to, at any depth."""
    found: set[str] = set()
    seen: set[int] = set()
    pending = [recording]
    while pending:
        value = pending.pop()
        if isinstance(value, Op):
            found.add(value.name)
        elif isinstance(value, FunctionType) and id(value) not in seen:
            seen.add(id(value))
            if hasattr(value, "__wrapped__"):
                pending.append(value.__wrapped__)
            elif value.__module__.startswith("tapegraph.ops"):
                pending.extend(cell.cell_contents for cell in value.__closure__ or ())
                pending.extend(_referred(value.__code__, value.__globals__))
    return frozenset(found)


def _referred(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the globals that code loads, and the attributes that it takes of our modules."""
    module: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            value = names.get(instruction.argval)
            ours = isinstance(value, ModuleType) and value.__name__.startswith("tapegraph.")
            module = value if ours else None
            yield value
        elif module is not None and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield getattr(module, instruction.argval, None)
            module = None
        else:
            module = None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _referred(constant, names)


def _engine(operations: list[str]) -> str:
    native = [op for op in operations if op in GAPS]
    if not native:
        return "both" if operations else ""
    if native == operations:
        return "native"
    return f"both; native with {', '.join(native)}"


def _names() -> dict[Any, list[str]]:
    """Return the public names of NumPy's functions, the function's own first."""
    names: dict[Any, list[str]] = {}
    for module, prefix in (
        (np, "np."),
        (np.linalg, "np.linalg."),
        (np.fft, "np.fft."),
        (np.lib.stride_tricks, "np.lib.stride_tricks."),
    ):
        for name in sorted(dir(module)):
            value = getattr(module, name)
            if callable(value) and not isinstance(value, type) and not name.startswith("_"):
                names.setdefault(value, []).append(prefix + name)
    for function, known in names.items():
        own = getattr(function, "__name__", "")
        known.sort(key=lambda name: (name.rpartition(".")[2] != own, name))
    return names

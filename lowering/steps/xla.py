"""What XLA is given of whole steps, and how much of it.

XLA rewrites formulas, which changes what they give where numbers overflow: ``log(exp(x))`` is
``x``, and ``a / b / c`` is ``a / (b * c)``. Steps with such operations are refused. It joins the
constants of ``(x + a) + b`` and ``(x * a) * b``, so it is fed the program's own and sees none. It
rounds ``x * y + z`` once. Its ``max`` and
``min`` do not keep a NaN, and it reads some element where a place is out of range: there a guard
notices, and the step runs without XLA.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import explain, warn
from tapegraph.locks import Lock
from tapegraph.lowering.rows.rules import LOWERINGS, raw
from tapegraph.lowering.runtime import tensorflow
from tapegraph.recording.lost_gradients import strict
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array, Xla

# XLA never frees what it compiled, so a process compiles no more than this.
LIMIT = 32
# Its time grows faster than the program; this many entries take some 10 s.
ENTRIES = 1000
# Seconds, about, to compile any step and run it for the first time, and each entry of it.
STEP, STEP_ENTRY = 0.2, 6e-3

# What agrees alone, and not in front of another operation.
_REWRITTEN = frozenset(("exp", "log", "pow"))
# What agrees besides, in all its cases.
_BESIDES = frozenset(
    "layer_norm broadcast_to equal not_equal less less_equal greater greater_equal logical_and "
    "logical_or logical_not logical_xor isnan isinf isfinite".split()
)
# What agrees, with its guard, where no gradient flows: clipping and the optimizer's rule.
_WITHOUT_GRADIENT = frozenset(
    ("div", "max", "min", "maximum", "minimum", "astype", "detach", "within")
)
_LOSES_NAN = frozenset(("max", "min", "maximum", "minimum"))
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_POWERS = (1, 2, 3)  # which XLA multiplies out, as NumPy does

_compiles = 0
_lock = Lock()


def claim() -> bool:
    """Count one more compile, or return False where the process has made as many as it may."""
    global _compiles
    with _lock():
        if _compiles >= LIMIT:
            return False
        _compiles += 1
        return True


def price(entries: int) -> float:
    """Return about how many seconds a program takes to be compiled with it, and to run first."""
    return STEP + STEP_ENTRY * entries


def failed_at_once(reason: str) -> None:
    """Say that a step which was to be compiled with it is not: warn, or raise where that is asked.

    - Raises RuntimeError: Under ``TAPEGRAPH_STRICT=1``.
    """
    received = f"a step that fails with XLA: {reason}"
    text = explain("compile(xla=True)", received, "what it compiles", "It runs without.")
    if strict():
        raise RuntimeError(text)
    warn(text, RuntimeWarning)


class When(Enum):
    """When a program is compiled with XLA."""

    NEVER = 0
    MEASURED = 1  # once that can pay; it stays where it is faster
    AT_ONCE = 2  # in place of the graph


class Use(NamedTuple):
    """When a program is compiled with XLA, and why never."""

    when: When
    reason: str = ""


def use(recording: Recording, option: Xla) -> Use:
    """Return what the option of `compile` means for a whole program."""
    if option is True:
        return Use(When.AT_ONCE)
    reason = refusal(recording) if option == "auto" else "it was compiled with xla=False"
    return Use(When.NEVER if reason else When.MEASURED, reason)


def reason(error: Exception) -> str:
    """Return in a line why XLA did not compile or run a graph."""
    text = str(error)
    missing = re.findall(r"(\w+) \(No registered", text)
    if missing:
        return "it has no " + " and no ".join(dict.fromkeys(missing))
    return text.partition("\n")[0]


def refusal(recording: Recording) -> str:
    """Return why a whole program is not given to XLA where nobody asked for it, or ``""``."""
    program = recording.program
    if len(program) > ENTRIES:
        return f"{len(program)} entries are more than {ENTRIES}"
    if any(dtype is not None and dtype.kind == "c" for dtype in program.dtypes):
        return "complex numbers are not known to give the same there"
    for slot, op in enumerate(program.ops):
        if program.inputs[slot] and op is not GRADIENT and not _agrees(recording, slot):
            return f"{op.name} is not known to give the same there"
    return ""


def _agrees(recording: Recording, slot: int) -> bool:
    program = recording.program
    op, inputs = program.ops[slot], program.inputs[slot]
    if op.rules is not None:  # a user's own
        return False
    name = op.name
    if name == "pow":
        exponent = inputs[1]
        return exponent in program.scalars and recording.values[exponent] in _POWERS
    if name == "sqrt" and _is_square(program, inputs[0]):  # whose root would be the absolute value
        return False
    if name in _WITHOUT_GRADIENT:
        if program.needs[slot]:
            return False
        if name == "div":
            return all(program.ops[i].name != "div" for i in inputs)
        return name != "astype" or program.dtypes[slot].kind == "f"
    if name in _BESIDES:
        return True
    return name not in _REWRITTEN and name in LOWERINGS and LOWERINGS[name].xla


def _is_square(program: Program, slot: int) -> bool:
    name, inputs = program.ops[slot].name, program.inputs[slot]
    return name == "pow" or (name == "mul" and inputs[0] == inputs[1])


class Hidden(NamedTuple):
    """A number that XLA is fed, and the slots that have it."""

    number: Array
    slots: list[int]


def hidden_numbers(recording: Recording) -> list[Hidden]:
    """Return the numbers that XLA is to be fed, so that it joins no two of them.

    Each is a tensor of its own, in the dtype of its readers: out of a vector, or in another dtype,
    it would be taken again for every element that is computed with it. Exponents stay: XLA
    multiplies powers of a known one out.
    """
    program = recording.program
    readers = program.readers()
    exponents = {
        inputs[1]
        for op, inputs in zip(program.ops, program.inputs, strict=True)
        if op.name == "pow"
    }
    found: dict[tuple[str, Any], Hidden] = {}
    for slot in program.scalars:
        value = recording.values[slot]
        if slot in exponents or not _is_float64(value):
            continue
        kinds = {program.dtypes[reader] for reader in readers[slot]}
        dtype = kinds.pop() if len(kinds) == 1 else np.dtype(np.float64)
        if dtype not in _FLOATS:
            dtype = np.dtype(np.float64)
        key = repr(float(value)), dtype  # by their text 0.0 and -0.0 differ
        if key not in found:
            with np.errstate(all="ignore"):
                found[key] = Hidden(np.asarray(value, dtype), [])
        found[key].slots.append(slot)
    return list(found.values())


def _is_float64(value: Any) -> bool:
    """Return whether a number is the same as a float64."""
    return not isinstance(value, (bool, np.bool_)) and (value != value or float(value) == value)


def guards(name: str, inputs: Sequence[Any], result: Any, *, careful: bool) -> list[Any]:
    """Return conditions under which an operation gives the same with XLA.

    Places are looked at always, for what is read elsewhere is another element.
    """
    tf = tensorflow()
    if name == "within":  # places out of range have become -1
        return [tf.reduce_all(raw.GreaterEqual(x=result, y=tf.zeros_like(result)))]
    if careful and name in _LOSES_NAN:
        floats = [x for x in inputs if x.dtype.is_floating]
        return [tf.logical_not(tf.math.is_nan(tf.reduce_sum(x))) for x in floats]
    return []

"""When whole steps are given to XLA, and how many; the numbers that are hidden from it.

It joins the constants of ``(x + a) + b`` and ``(x * a) * b``, so it is fed the program's own and
sees none.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import message, warn
from tapegraph.interrupts import Lock
from tapegraph.lowering.steps import agreement
from tapegraph.recording.lost_gradients import strict
from tapegraph.recording.program import Recording
from tapegraph.typed import Array, Xla

# XLA never frees what it compiled, so a process compiles no more than this.
LIMIT = 32
# Seconds, about, to compile any step and run it for the first time, and each entry of it.
STEP, STEP_ENTRY = 0.2, 6e-3

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

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
    """Report that a step is not compiled with XLA as was asked: warn, or raise in strict mode.

    :raises RuntimeError: Under ``TAPEGRAPH_STRICT=1``.
    """
    received = f"a step that fails with XLA: {reason}"
    text = message("compile(xla=True)", received, "what it compiles", "It runs without.")
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
    reason = agreement.refusal(recording) if option == "auto" else "it was compiled with xla=False"
    return Use(When.NEVER if reason else When.MEASURED, reason)


def reason(error: Exception) -> str:
    """Return in a line why XLA did not compile or run a graph."""
    text = str(error)
    missing = re.findall(r"(\w+) \(No registered", text)
    if missing:
        return "it has no " + " and no ".join(dict.fromkeys(missing))
    return text.partition("\n")[0]


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

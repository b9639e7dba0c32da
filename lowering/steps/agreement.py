"""Where XLA gives the numbers of a graph without it: which steps it is given unasked.

XLA rewrites formulas, which changes what they give where numbers overflow or vanish. In most
formulas there is nothing to rewrite: an operation is refused beside those that it is joined with.
Where what matters is how large numbers are, where a NaN would be lost and where a place may be out
of range, a guard looks at the numbers of each run, and the graph runs where they are not for XLA.
It rounds ``x * y + z`` once. ``tests/lowering/test_agreement.py`` measures all of this over the
whole range of the dtype.

It joins the constants of ``(x + a) + b`` and ``(x * a) * b``, so it is fed the program's own and
sees none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegraph.lowering.rows.rules import LOWERINGS, raw
from tapegraph.lowering.runtime import tensorflow
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
# XLA's time grows faster than the program; this many entries take some 20 s.
ENTRIES = 3000
# What agrees besides the rows that say so, in all its cases or with a guard.
_BESIDES = frozenset(
    "layer_norm broadcast_to equal not_equal less less_equal greater greater_equal logical_and "
    "logical_or logical_not logical_xor isnan isinf isfinite max min maximum minimum detach "
    "within arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil erfc expm1 floor log1p rint "
    "sign trunc".split()
)
# What has its one input's elements, in another order or with another sign.
_OF_ONE = frozenset("reshape transpose broadcast_to getitem neg detach astype".split())
# A quotient is of no more divisions than this: the product of their denominators is to be one.
_MOST_QUOTIENTS = 3
_POWERS = (1, 2, 3)  # which XLA multiplies out, as NumPy does
# By what the gradient divides.
_DIVIDES_BY: dict[str, Callable[[Any], Any]] = {"log": lambda x: x, "log1p": lambda x: x + 1.0}
_LOSES_NAN = frozenset(("max", "min", "maximum", "minimum"))


def refusal(recording: Recording) -> str:
    """Return why a whole program is not given to XLA where nobody asked for it, or ``""``."""
    program = recording.program
    if len(program) > ENTRIES:
        return f"{len(program)} entries are more than {ENTRIES}"
    if any(dtype is not None and dtype.kind == "c" for dtype in program.dtypes):
        return "complex numbers are not known to give the same there"
    formula = _Formula(recording)
    for slot, op in enumerate(program.ops):
        if program.inputs[slot] and op is not GRADIENT and not formula.agrees(slot):
            return f"{op.name} is not known to give the same there"
    return ""


class _Formula:
    """What stands before each entry of a program."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._program = program = recording.program
        self._after_exp = [False] * len(program)  # whether it depends on an exponential
        self._quotients = [0] * len(program)  # of how many divisions it is the quotient
        for slot, op in enumerate(program.ops):
            inputs = program.inputs[slot]
            self._after_exp[slot] = any(
                self._after_exp[i] or program.ops[i].name == "exp" for i in inputs
            )
            if op.name == "div":
                self._quotients[slot] = 1 + sum(self._quotients[i] for i in inputs)

    def agrees(self, slot: int) -> bool:
        """Return whether XLA gives the same of an entry."""
        op = self._program.ops[slot]
        if op.rules is not None:  # a user's own
            return False
        if op.name in _JOINED:
            return _JOINED[op.name](self, slot)
        if op.name == "astype":
            return self._program.dtypes[slot].kind == "f"
        return op.name in _BESIDES or (op.name in LOWERINGS and LOWERINGS[op.name].xla)

    def _pow(self, slot: int) -> bool:
        # A power of a power, or of an exponential, is taken at once.
        base, exponent = self._program.inputs[slot]
        if exponent not in self._program.scalars:
            return False
        return self._is_product(slot) or self._source(base) not in ("exp", "pow")

    def _sqrt(self, slot: int) -> bool:
        # The root of a square is the absolute value.
        (x,) = self._program.inputs[slot]
        name, inputs = self._program.ops[x].name, self._program.inputs[x]
        return name != "pow" and not (name == "mul" and inputs[0] == inputs[1])

    def _log(self, slot: int) -> bool:
        # The logarithm of an exponential is the exponent, that of a power a product.
        return self._source(self._program.inputs[slot][0]) not in ("exp", "pow")

    def _exp(self, slot: int) -> bool:
        # The gradient of an exponential of an exponential multiplies the two.
        return not (self._program.needs[slot] and self._after_exp[slot])

    def _mul(self, slot: int) -> bool:
        # The product of exponentials is that of the sum.
        return {self._source(i) for i in self._program.inputs[slot]} != {"exp"}

    def _div(self, slot: int) -> bool:
        # What is divided by an exponential or a power is multiplied by another; the denominators of
        # a quotient of quotients are multiplied, and `guards` sees that a few can be.
        _, below = self._program.inputs[slot]
        source = self._source(below)
        is_power = source == "pow" and not (
            self._program.ops[below].name == "pow" and self._is_product(below)
        )
        return source != "exp" and not is_power and self._quotients[slot] <= _MOST_QUOTIENTS

    def _is_product(self, slot: int) -> bool:
        exponent = self._program.inputs[slot][1]
        return exponent in self._program.scalars and self._recording.values[exponent] in _POWERS

    def _source(self, slot: int) -> str:
        """Return the name of what computed a value, whatever its shape and sign are by now."""
        while self._program.ops[slot].name in _OF_ONE:
            slot = self._program.inputs[slot][0]
        return str(self._program.ops[slot].name)


# What XLA joins with what stands before it, and where it does not.
_JOINED: dict[str, Callable[[_Formula, int], bool]] = {
    "div": _Formula._div,
    "exp": _Formula._exp,
    "log": _Formula._log,
    "mul": _Formula._mul,
    "pow": _Formula._pow,
    "sqrt": _Formula._sqrt,
}


def guards(
    program: Program, slot: int, inputs: Sequence[Any], result: Any, *, careful: bool
) -> list[Any]:
    """Return conditions under which an operation gives the same with XLA.

    Places are looked at always, for what is read elsewhere is another element.
    """
    tf, name = tensorflow(), program.ops[slot].name
    if name == "within":  # places out of range have become -1
        return [tf.reduce_all(raw.GreaterEqual(x=result, y=tf.zeros_like(result)))]
    if not careful:
        return []
    if name in _LOSES_NAN:
        floats = [x for x in inputs if x.dtype.is_floating]
        return [tf.logical_not(tf.math.is_nan(tf.reduce_sum(x))) for x in floats]
    # The gradient divides once more, and XLA divides by the product of the denominators.
    if name == "div" and (program.needs[slot] or _is_of_quotients(program, slot)):
        return [_is_moderate(inputs[1])]
    if name in _DIVIDES_BY and program.needs[slot]:
        return [_is_moderate(_DIVIDES_BY[name](inputs[0]))]
    return []


def _is_of_quotients(program: Program, slot: int) -> bool:
    return any(program.ops[i].name == "div" for i in program.inputs[slot])


def _is_moderate(x: Any) -> Any:
    """Return whether the product of a few of these numbers is one of the dtype, and normal."""
    tf = tensorflow()
    limit = 2.0 ** (np.finfo(x.dtype.as_numpy_dtype).maxexp // (1 + _MOST_QUOTIENTS))
    size = tf.abs(x)
    return tf.reduce_all(tf.logical_and(size < limit, size > 1.0 / limit))


# ------------------------------------------------------------------ numbers it is fed


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
    return not isinstance(value, (bool, np.bool_)) and (value != value or float(value) == value)

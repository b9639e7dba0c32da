"""The arithmetic of Values: operations on floats, and programs of them, which `Levels` runs."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import CodePlace, line_of, message
from tapegraph.recording.program import scalar_bits
from tapegraph.typed import Array, Fun

# -- on floats -------------------------------------------------------------------------------


def total(f: Callable[[float], float], x: float) -> float:
    try:
        return f(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def log(x: float) -> float:
    return total(math.log, x) if x else -math.inf


def divide(x: float, y: float) -> float:
    if y:
        return x / y
    if x == 0 or x != x:
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def power(x: float, y: float) -> float:
    """Return x ** y by IEEE 754: NaN for a negative base with a fractional exponent."""
    try:
        return math.pow(x, y)
    except OverflowError:
        size = math.inf
    except ValueError:
        if x:
            return math.nan
        size = math.inf
    # Infinite, and negative where an odd power keeps the sign of the base.
    odd = math.isfinite(y) and math.fmod(y, 2.0) in (1.0, -1.0)
    return math.copysign(size, x) if odd else size


def power_slope_y(x: float, y: float, out: float) -> float:
    """Return the derivative of ``x ** y = out`` in y: 0 where x <= 0, and for nan**0."""
    return 0.0 if x <= 0 else out * (log(x) if x > 0 else 0.0)


def sigmoid(x: float) -> float:
    """Return 1/(1 + e**-x); with z = e**-abs(x) <= 1 nothing overflows."""
    z = math.exp(-abs(x))
    return 1.0 / (1.0 + z) if x >= 0 else z / (1.0 + z)


def sigmoid_slope(x: float) -> float:
    """Return s (1 - s), precise in both tails."""
    z = math.exp(-abs(x))
    return z / (1.0 + z) ** 2


def abs_slope(x: float) -> float:
    """Return the derivative of the absolute value: 0 at 0, and NaN at NaN."""
    return 1.0 if x > 0 else -1.0 if x < 0 else x - x


def weighed(slope: float, cotangent: float) -> float:
    return slope * cotangent if cotangent else 0.0


def python_power(x: float, y: float) -> float:
    """Return x ** y as Python does, which raises if there is no float."""
    out = x**y
    if type(out) is not float:
        fix = "Take powers of positive numbers, or of Values, which give NaN."
        raise TypeError(message("pow", f"{x!r} ** {y!r}, which is complex", "a float", fix))
    return out


# -- on vectors ------------------------------------------------------------------------------


class ScalarOp(NamedTuple):
    """One operation on floats, and on vectors: ``vector(*arrays, out)`` has the bits of ``number``.

    For results that are not exactly rounded, ``quick`` calls ``math`` per number, and may raise.
    """

    number: Callable[..., float]
    vector: Fun | None = None
    quick: Callable[..., float] | None = None

    def run(self, *operands: Array) -> None:
        """Compute it number by number for vectors, some perhaps of one; the last is the result."""
        *arrays, out = operands
        lists = [x.tolist() * (out.size // x.size) for x in arrays]
        try:
            out[:] = [*map(self.quick or self.number, *lists)]
        except (OverflowError, ValueError):
            out[:] = [*map(self.number, *lists)]


def _relu(x: Array, out: Array) -> None:
    np.copyto(out, x)
    out[out <= 0] = 0.0


def _python_divide(x: Array, y: Array, out: Array) -> None:
    if not y.all():
        raise ZeroDivisionError("float division by zero")
    np.divide(x, y, out)


def _step(x: Array, out: Array) -> None:
    np.greater(x, 0.0, out=out, casting="unsafe")


def _of_math(function: Callable[[float], float]) -> ScalarOp:
    return ScalarOp(lambda x: total(function, x), quick=function)


# Which chains become one sum; and a slope by a cotangent.
ADD, WEIGHED = "add", "weighed"
SCALAR_OPS: dict[str, ScalarOp] = {
    ADD: ScalarOp(operator.add, np.add),
    "sub": ScalarOp(operator.sub, np.subtract),
    "mul": ScalarOp(operator.mul, np.multiply),
    "div": ScalarOp(divide, np.divide),
    "pow": ScalarOp(power, quick=math.pow),
    # Of Python's floats, which raise.
    "python_div": ScalarOp(operator.truediv, _python_divide),
    "python_pow": ScalarOp(python_power),
    "pow_slope_x": ScalarOp(lambda x, y: y * power(x, y - 1.0) if y else 0.0),  # 0**0 is flat
    "pow_slope_y": ScalarOp(power_slope_y),
    "neg": ScalarOp(operator.neg, np.negative),
    "abs": ScalarOp(abs, np.absolute),
    "sign": ScalarOp(abs_slope, np.sign),
    "relu": ScalarOp(lambda x: 0.0 if x <= 0 else x, _relu),  # so NaN stays NaN
    "step": ScalarOp(lambda x: 1.0 if x > 0 else 0.0, _step),
    "sqrt": ScalarOp(lambda x: total(math.sqrt, x), np.sqrt),
    "exp": _of_math(math.exp),
    "log": ScalarOp(log, quick=math.log),
    "sin": _of_math(math.sin),
    "cos": _of_math(math.cos),
    "tan": _of_math(math.tan),
    "tanh": _of_math(math.tanh),
    "sigmoid": ScalarOp(sigmoid),
    "sigmoid_slope": ScalarOp(sigmoid_slope),
    WEIGHED: ScalarOp(weighed, np.multiply),  # `Levels` looks at NaN a second time
}
# Of any number of operands, added up in order from 0.0.
TOTAL = "sum"
# Leaves: a run's inputs, and the numbers that are the same in every run.
GIVEN, NUMBER = "given", "number"


# -- slopes ----------------------------------------------------------------------------------


# The functions of floats; a recorder of numbers has the same names.
FLOATS = SimpleNamespace(constant=float, **{kind: op.number for kind, op in SCALAR_OPS.items()})
# The derivatives of an operation by its operands: who computes, the result, and the operands.
LOCAL_GRADS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "add": lambda do, out, x, y: (do.constant(1.0), do.constant(1.0)),
    "sub": lambda do, out, x, y: (do.constant(1.0), do.constant(-1.0)),
    "mul": lambda do, out, x, y: (y, x),
    "div": lambda do, out, x, y: (do.div(do.constant(1.0), y), do.div(do.neg(out), y)),
    "pow": lambda do, out, x, y: (do.pow_slope_x(x, y), do.pow_slope_y(x, y, out)),
    "neg": lambda do, out, x: (do.constant(-1.0),),
    "exp": lambda do, out, x: (out,),
    "log": lambda do, out, x: (do.div(do.constant(1.0), x),),
    "sqrt": lambda do, out, x: (do.div(do.constant(0.5), out),),
    "sin": lambda do, out, x: (do.cos(x),),
    "cos": lambda do, out, x: (do.neg(do.sin(x)),),
    "tan": lambda do, out, x: (do.add(do.constant(1.0), do.mul(out, out)),),
    "tanh": lambda do, out, x: (do.sub(do.constant(1.0), do.mul(out, out)),),
    "sigmoid": lambda do, out, x: (do.sigmoid_slope(x),),
    "relu": lambda do, out, x: (do.step(x),),
    "abs": lambda do, out, x: (do.sign(x),),
}


# -- programs --------------------------------------------------------------------------------


_LEAVES = (GIVEN, NUMBER)
_FOLD = "fold"


@dataclass(eq=False, repr=False)
class Numbers:
    """A function of vectors, number by number.

    :param kinds: The operation of each number: of `SCALAR_OPS`, `TOTAL`, or a leaf.
    :param args: Its earlier operands; of a ``GIVEN`` the position in a run's vectors, end to end.
    :param constants, exports: The numbers that are equal in every run; those that a run returns.
    :param given, places: The length of the vectors; the code object and offset of each number.
    """

    kinds: list[str]
    args: list[tuple[int, ...]]
    constants: dict[int, float]
    exports: list[int]
    given: int
    places: list[CodePlace | None]

    @cached_property
    def levels(self) -> Levels:
        return Levels(self)

    def __len__(self) -> int:
        return len(self.kinds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self.differs_from(other) is None

    def __hash__(self) -> int:
        return hash((len(self.kinds), tuple(self.exports)))

    def __repr__(self) -> str:
        return f"{len(self.kinds)} numbers"

    def differs_from(self, other: Numbers) -> str | None:
        rows = zip(self.kinds, self.args, other.kinds, other.args, strict=False)
        for i, (kind, args, other_kind, other_args) in enumerate(rows):
            if kind != other_kind or args != other_args:
                return f"{self._described(i)}, and then {other._described(i)}"
            if kind == NUMBER:
                before, after = self.constants[i], other.constants[i]
                if not np.array_equal(scalar_bits([before]), scalar_bits([after])):
                    return f"the number {before!r}, and then {after!r}, in {self._reader(i)}"
        if len(self) != len(other):
            return f"{len(self)} numbers of Values, and then {len(other)}"
        return None if self.exports == other.exports else "other numbers of Values that leave"

    def _described(self, i: int) -> str:
        if self.kinds[i] == GIVEN:
            return "a number from outside"
        if self.kinds[i] == NUMBER:
            return f"the number {self.constants[i]!r} in {self._reader(i)}"
        place = self.places[i]
        return f"{self.kinds[i]} of Values" + (f" at {line_of(*place)}" if place else "")

    def _reader(self, i: int) -> str:
        for j in range(i + 1, len(self)):
            if i in self.args[j] and self.kinds[j] != GIVEN:
                return self._described(j)
        return "the result"


class Levels:
    """A program of `Numbers`, ready to run; it owns its memory, so one run at a time."""

    def __init__(self, numbers: Numbers) -> None:
        kinds, count = numbers.kinds, len(numbers)
        self._count = count
        operands = _folded(kinds, numbers.args, numbers.exports)
        depths: dict[int, int] = {}
        groups = defaultdict(list)
        for i, (kind, read) in operands.items():
            depths[i] = 0
            if kind not in _LEAVES:
                depths[i] = 1 + max([depths[x] for x in read if x is not None], default=0)
                groups[depths[i], kind, _width(kind, len(read))].append(i)
        self.depth = max(depths.values(), default=0)
        order = sorted(groups)

        # The place of each number: given ones, constants, results, and passed cotangents.
        zero, nothing = count, count + 1  # 0.0, where totals begin; -0.0, which adds nothing
        positions = np.zeros(count + 2, np.intp)
        for i, kind in enumerate(kinds):
            if kind == GIVEN:
                (positions[i],) = numbers.args[i]
        self._given = numbers.given
        known = {**numbers.constants, zero: 0.0, nothing: -0.0}
        stop = self._given + len(known)
        positions[[*known]] = np.arange(self._given, stop)
        places = {}
        for key in sorted(order, key=lambda key: key[1] == WEIGHED):  # passed cotangents last
            members = groups[key]
            places[key] = slice(stop, stop + len(members))
            positions[members] = np.arange(stop, stop + len(members))
            stop += len(members)
        self._weighed = stop - sum(len(groups[key]) for key in order if key[1] == WEIGHED)
        self._pool = pool = np.zeros(stop)
        pool[positions[[*known]]] = [*known.values()]
        self.nbytes = pool.nbytes
        self._exports = positions[numbers.exports]

        # The calls in order, and which of them differ where zero must stay zero.
        self._calls: list[tuple[Fun, tuple[Any, ...]]] = []
        self._strong: list[tuple[int, Array, Array]] = []
        for key in order:
            _, kind, width = key
            out, members = pool[places[key]], groups[key]
            rows = [operands[i][1] for i in members]
            if kind == _FOLD:
                rows = [(*row, *[nothing] * (width - len(row))) for row in rows]
                rows = [tuple(zero if x is None else x for x in row) for row in rows]
            found = positions[np.array(rows, np.intp)]
            if kind == _FOLD and width > 2:
                self._calls.append((_added, (self._operand(found.T), out)))
                continue
            columns = [self._operand(column) for column in found.T]
            run = np.add if kind == _FOLD else SCALAR_OPS[kind].vector or SCALAR_OPS[kind].run
            if kind == WEIGHED:
                self._strong.append((len(self._calls), columns[1], out))
            self._calls.append((run, (*columns, out)))
        self.calls = len(self._calls)

    def __len__(self) -> int:
        return self._count

    def _operand(self, positions: Array) -> Array:
        """Return the array that holds an operand: in place, or gathered by a call before."""
        flat = np.ascontiguousarray(positions).reshape(-1)
        first, steps = int(flat[0]), np.diff(flat)
        if flat.size == 1 or (steps == 1).all():
            return self._pool[first : first + flat.size].reshape(positions.shape)
        if positions.ndim == 1 and not steps.any():
            return self._pool[first : first + 1]
        buffer = np.empty(flat.size)
        self.nbytes += buffer.nbytes + flat.nbytes
        # With any other mode `take` would fill a copy first.
        self._calls.append((partial(self._pool.take, flat, None, buffer, "clip"), ()))
        return buffer.reshape(positions.shape)

    def run(self, vectors: Sequence[Array]) -> Array:
        pool = self._pool
        if self._given:
            flat = [x.reshape(-1) for x in vectors]
            np.concatenate(flat, out=pool[: self._given], casting="unsafe")
        with np.errstate(all="ignore"):
            for call, operands in self._calls:
                call(*operands)
            if self._strong and np.isnan(pool[self._weighed :]).any():
                self._run_strong()
        return pool.take(self._exports)

    def _run_strong(self) -> None:
        """Run again, and let a zero cotangent pass on zero, whatever the slope is."""
        weighed = {at: (cotangent, out) for at, cotangent, out in self._strong}
        for at, (call, operands) in enumerate(self._calls):
            call(*operands)
            if at in weighed:
                cotangent, out = weighed[at]
                out[np.broadcast_to(cotangent == 0.0, out.shape)] = 0.0


def _folded(
    kinds: list[str], args: list[tuple[int, ...]], exports: list[int]
) -> dict[int, tuple[str, Sequence[Any]]]:
    """Return each number's operation and operands; a chain of additions is one sum."""
    uses = [0] * len(kinds)
    for i in exports:
        uses[i] += 2  # a result is never folded
    for kind, given in zip(kinds, args, strict=True):
        if kind != GIVEN:
            for x in given:
                uses[x] += 1
    found: dict[int, tuple[str, Sequence[Any]]] = {}
    terms: dict[int, list[Any]] = {}
    for i, (kind, given) in enumerate(zip(kinds, args, strict=True)):
        if kind == TOTAL:
            terms[i] = [None, *given]
        elif kind == ADD:
            a, b = given
            if a in terms and uses[a] == 1:
                chain = terms.pop(a)
                chain.append(b)
            elif b in terms and uses[b] == 1:  # a + b is b + a, to the bit
                chain = terms.pop(b)
                chain.append(a)
            else:
                chain = [a, b]
            terms[i] = chain
        else:
            found[i] = kind, given
    found.update((i, (_FOLD, chain)) for i, chain in terms.items())
    return dict(sorted(found.items()))


def _width(kind: str, count: int) -> int:
    """Return the number of operands of a call on vectors: sums of like lengths share one."""
    if kind != _FOLD or count <= 4:
        return count
    unit = 1 << (count.bit_length() - 3)  # at most a quarter more
    return -(-count // unit) * unit


def _added(terms: Array, out: Array) -> None:
    """Add the rows of a matrix, each to the sum of those before."""
    if terms.shape[1] < 8:
        out[:] = np.add.accumulate(terms, axis=0)[-1]
        return
    np.add(terms[0], terms[1], out)
    for row in terms[2:]:
        np.add(out, row, out)

"""IEEE 754 arithmetic on floats that never raises, with the same bits for whole vectors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import message
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

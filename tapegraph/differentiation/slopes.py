"""Slopes: the derivative of every element-wise operation, stated once, one slope per input.

``slope(y, *inputs, **attrs)`` multiplies a cotangent or tangent, a `Divisor` divides it, a
`Linear` maps it; None has no gradient. They are array code for arrays, Tensors, Duals and graph
symbols; `either` supplies functions that NumPy lacks.
"""

from __future__ import annotations

import dis
import math
import operator
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tapegraph.differentiation.products import divisor, factors
from tapegraph.ops import special
from tapegraph.ops.elementwise import (
    GELU_CUBIC,
    GELU_FLAT,
    GELU_SCALE,
    LN2,
    LN10,
    SINC_NEAR,
    logistic,
    sigmoid,
    sinc_slope_series,
)
from tapegraph.ops.special import BESSEL_I, BESSEL_J, bessel, bessel_i_of, bessel_j_of, of_scipy
from tapegraph.recording.op import OPS
from tapegraph.recording.record import is_complex
from tapegraph.typed import Array, DType, Fun


class Divisor(NamedTuple):
    """A function whose result divides the cotangent, as in ``g / x`` for ``log``."""

    of: Fun


class Linear(NamedTuple):
    """A function ``of(g, y, *inputs, **attrs)`` that passes on, negates or selects ``g``."""

    of: Fun


Slope: TypeAlias = "Fun | Divisor | Linear | None"
Slopes: TypeAlias = dict[str, tuple[Slope, ...]]


def rule_of(
    slope: Slope,
    times: Callable[[Array, Array], Array] = operator.mul,
    over: Callable[[Array, Array], Array] = operator.truediv,
) -> Fun:
    """Return the rule by which a slope maps a cotangent or tangent, with these products."""
    if isinstance(slope, Linear):
        return slope.of
    if isinstance(slope, Divisor):
        divisor = slope.of
        return lambda g, y, *inputs, **attrs: over(g, divisor(y, *inputs, **attrs))
    factor: Any = slope
    return lambda g, y, *inputs, **attrs: times(g, factor(y, *inputs, **attrs))


SAME = Linear(lambda g, y, *inputs: g)
NEGATED = Linear(lambda g, y, *inputs: -g)
FLAT = Linear(lambda g, y, *inputs, **attrs: np.zeros_like(g))

_NUMBERS = (int, float)
_ARRAYS = (np.ndarray, np.generic, *_NUMBERS)


def either(of_arrays: Fun, recording: Fun) -> Fun:
    """Combine two implementations of a function that NumPy lacks: for arrays, and for the rest."""

    def run(*args: Array) -> Array:
        arrays = isinstance(args[-1], _ARRAYS) or hasattr(args[-1], "builder")  # of a plan
        return (of_arrays if arrays else recording)(*args)

    return run


def converted(x: Array, dtype: DType) -> Array:
    return np.asarray(x, dtype) if isinstance(x, _NUMBERS) else x.astype(dtype, copy=False)


_logistic = either(logistic, sigmoid)


def _pow_base(y: Array, a: Array, b: Array) -> Array:
    # b * a**(b-1) is 0 * inf at 0**0; the power is constant there.
    if isinstance(b, (int, float)):
        return b * a ** (b - 1) if b else 0.0
    b = converted(b, y.dtype)  # of small integers b - 1 can wrap around
    power = a ** (b - 1.0)
    return b * np.where((b == 0) & ~np.isfinite(power), 0.0, power)


def _pow_exponent(y: Array, a: Array, b: Array) -> Array:
    a = converted(a, y.dtype)
    if is_complex(y):
        return np.where(a == 0, 0.0, y * np.log(np.where(a == 0, 1.0, a)))
    return np.where(a <= 0, 0.0, y * np.log(np.where(a > 0, a, 1.0)))  # NaN stays NaN


def _cbrt(y: Array, x: Array) -> Array:
    # At 0, where y has an infinite slope, 0 * inf would hide the growth.
    return np.where(x == 0, x + 0.0, 3.0 * y * y)


def _gelu(y: Array, x: Array) -> Array:
    # So that x^3 is finite where it is multiplied by zero.
    x = np.minimum(np.maximum(x, -GELU_FLAT), GELU_FLAT)
    square = x * x
    bend = np.tanh(GELU_SCALE * x * (1.0 + GELU_CUBIC * square))
    steep = 0.5 * GELU_SCALE * x * (1.0 + 3.0 * GELU_CUBIC * square)
    return steep * (1.0 - bend * bend) + 0.5 * (1.0 + bend)


def _silu(y: Array, x: Array) -> Array:
    s = _logistic(x)
    return s + y * (1.0 - s)


def _sinc(y: Array, x: Array) -> Array:
    near = np.abs(x) < SINC_NEAR
    far = np.where(near, 1.0, x)
    return np.where(near, sinc_slope_series(x), (np.cos(math.pi * far) - y) / far)


def _arctan2(across: Array, a: Array, b: Array) -> Array:
    r = np.hypot(a, b)
    return np.where(np.isinf(r), 0.0, across / r) / r


def _hypot(y: Array, leg: Array) -> Array:
    return leg / np.where(y == 0, 1.0, y)


def _share(a: Array, b: Array) -> Array:
    same = (a == b) & np.isinf(a)  # inf - inf
    return _logistic(np.where(same, 0.0, a - b))


def _chosen(g: Array, mine: Array, other: Array) -> Array:
    """Return 1 for the chosen operand, 0 for the other, and half for a tie."""
    return np.where(mine, g, np.where(other, 0.0, 0.5 * g))


_OF_LARGER = Linear(lambda g, y, a, b: _chosen(g, a > b, a < b))
_OF_SMALLER = Linear(lambda g, y, a, b: _chosen(g, a < b, a > b))


def _not_nan(g: Array, over: Array, under: Array, mine: Array, other: Array) -> Array:
    """Return 1 for the operand chosen because the other is NaN."""
    mine_is_nan, other_is_nan = np.isnan(mine), np.isnan(other)
    return _chosen(g, over | (~mine_is_nan & other_is_nan), under | (mine_is_nan & ~other_is_nan))


def _beyond(x: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return where the lower bound replaces a number, and where the upper one does."""
    under = (x < low) | np.isnan(low)
    over = (np.where(under, low, x) > high) | np.isnan(high)
    return under & ~over, over


def _within(g: Array, x: Array, low: Array, high: Array) -> Array:
    under, over = _beyond(x, low, high)
    return np.where(under | over, 0.0, g)


def _quotient(y: Array, a: Array, b: Array) -> Array:
    """``-floor(a / b)``; rounding ``a / b`` first could make it one too many."""
    return np.where(np.isinf(b) & np.isfinite(a), y != a, np.rint((y - a) / b))


_HALF_ROOT_PI = math.sqrt(math.pi) / 2.0
_ROOT_HALF = math.sqrt(0.5)

_polygamma = either(special.polygamma_of, special.polygamma)
_erfcx = either(lambda x: of_scipy("erfcx")(x), special.erfcx)
_bessel_i = either(bessel_i_of, partial(bessel, BESSEL_I))
_bessel_j = either(bessel_j_of, partial(bessel, BESSEL_J))


def _beta(y: Array, a: Array, b: Array) -> Array:
    """Return the derivative of ``log |beta(a, b)|`` with respect to ``a``."""
    return _polygamma(0, converted(a, y.dtype)) - _polygamma(0, a + b)


def _log_ndtr(y: Array, x: Array) -> Array:
    # The density over the distribution; each of them underflows far below zero.
    return (_ROOT_HALF / _HALF_ROOT_PI) / _erfcx(x * -_ROOT_HALF)


def _by_factor(logarithm: Fun, y: Array, x: Array, inner: Array, shift: float) -> Array:
    inner = converted(inner, y.dtype)
    flat = (x == 0) & (inner + shift <= 0)
    return np.where(flat, 0.0, logarithm(np.where(flat, 1.0, inner)))


def _by_inner(x: Array, inner: Array) -> Array:
    flat = (x == 0) & ((inner == 0) | np.isnan(inner))
    return x / np.where(flat, 1.0, inner)


def _of_bessel_i(y: Array, x: Array, *, n: int) -> Array:
    return _bessel_i(1, x) if n == 0 else 0.5 * (_bessel_i(n - 1, x) + _bessel_i(n + 1, x))


def _of_bessel_j(y: Array, x: Array, *, n: int) -> Array:
    return -_bessel_j(1, x) if n == 0 else 0.5 * (_bessel_j(n - 1, x) - _bessel_j(n + 1, x))


SLOPES: Slopes = {
    "add": (SAME, SAME),
    "sub": (SAME, NEGATED),
    "mul": (lambda y, a, b: b, lambda y, a, b: a),
    "div": (Divisor(lambda y, a, b: b), lambda y, a, b: -y / b),
    "mul_strong": (
        lambda y, a, b, *, absorbs: factors(a, b, absorbs)[1],
        lambda y, a, b, *, absorbs: factors(a, b, absorbs)[0],
    ),
    "div_strong": (
        Divisor(lambda y, a, b, *, absorbs: divisor(a, b, absorbs)),
        lambda y, a, b, *, absorbs: -y / divisor(a, b, absorbs),
    ),
    "pow": (_pow_base, _pow_exponent),
    "neg": (NEGATED,),
    "sin": (lambda y, x: np.cos(x),),
    "cos": (lambda y, x: -np.sin(x),),
    "tan": (lambda y, x: 1.0 + y * y,),
    "exp": (lambda y, x: y,),
    "log": (Divisor(lambda y, x: x),),
    "sqrt": (Divisor(lambda y, x: 2.0 * y),),
    "tanh": (lambda y, x: 1.0 - y * y,),
    "sigmoid": (lambda y, x: y * (1.0 - y),),
    "relu": (lambda y, x: y > 0,),  # so that y may lie where x did
    "abs": (lambda y, x: np.conj(x) / np.where(y == 0, 1.0, y) if is_complex(x) else np.sign(x),),
    # The slope of a real result with respect to a complex input reads so: the result moves by the
    # real part of the slope times the tangent, and so the cotangent times the slope goes back.
    "real": (SAME,),
    "imag": (lambda y, x: -1j,),
    "angle": (Divisor(lambda y, x: 1j * x),),
    "from_parts": (SAME, lambda y, a, b: 1j),
    "conj": (Linear(lambda g, y, x: np.conj(g)),),
    "gelu": (_gelu,),
    "silu": (_silu,),
    "cbrt": (Divisor(_cbrt),),
    "log1p": (Divisor(lambda y, x: 1.0 + x),),
    "expm1": (lambda y, x: np.exp(x),),
    "log2": (Divisor(lambda y, x: LN2 * x),),
    "log10": (Divisor(lambda y, x: LN10 * x),),
    "exp2": (lambda y, x: LN2 * y,),
    "sinh": (lambda y, x: np.cosh(x),),
    "cosh": (lambda y, x: np.sinh(x),),
    "arcsin": (Divisor(lambda y, x: np.sqrt((1.0 - x) * (1.0 + x))),),
    "arccos": (Divisor(lambda y, x: -np.sqrt((1.0 - x) * (1.0 + x))),),
    "arctan": (Divisor(lambda y, x: 1.0 + x * x),),
    "arcsinh": (Divisor(lambda y, x: np.sqrt(x * x + 1.0) if is_complex(x) else np.hypot(x, 1.0)),),
    "arccosh": (Divisor(lambda y, x: np.sqrt(x - 1.0) * np.sqrt(x + 1.0)),),
    "arctanh": (Divisor(lambda y, x: (1.0 - x) * (1.0 + x)),),
    "sinc": (_sinc,),
    "arctan2": (lambda y, a, b: _arctan2(b, a, b), lambda y, a, b: _arctan2(-a, a, b)),
    "hypot": (lambda y, a, b: _hypot(y, a), lambda y, a, b: _hypot(y, b)),
    "logaddexp": (lambda y, a, b: _share(a, b), lambda y, a, b: _share(b, a)),
    "maximum": (_OF_LARGER, _OF_SMALLER),
    "minimum": (_OF_SMALLER, _OF_LARGER),
    "fmax": (
        Linear(lambda g, y, a, b: _not_nan(g, a > b, a < b, a, b)),
        Linear(lambda g, y, a, b: _not_nan(g, b > a, b < a, b, a)),
    ),
    "fmin": (
        Linear(lambda g, y, a, b: _not_nan(g, a < b, a > b, a, b)),
        Linear(lambda g, y, a, b: _not_nan(g, b < a, b > a, b, a)),
    ),
    "clip": (
        Linear(lambda g, y, x, low, high: _within(g, x, low, high)),
        Linear(lambda g, y, x, low, high: np.where(_beyond(x, low, high)[0], g, 0.0)),
        Linear(lambda g, y, x, low, high: np.where(_beyond(x, low, high)[1], g, 0.0)),
    ),
    "sign": (FLAT,),
    "floor": (FLAT,),
    "ceil": (FLAT,),
    "rint": (FLAT,),
    "trunc": (FLAT,),
    "round": (FLAT,),
    "mod": (SAME, _quotient),
    "floor_divide": (FLAT, FLAT),
    "astype": (Linear(lambda g, y, x, *, dtype: g.astype(dtype, copy=False)),),
    "round_to": (Linear(lambda g, y, x, *, dtype: g.astype("float32", copy=False)),),
    "where": (
        None,
        Linear(lambda g, y, cond, a, b: np.where(cond, g, 0.0)),
        Linear(lambda g, y, cond, a, b: np.where(cond, 0.0, g)),
    ),
    # The functions of ``tg.special``
    "erf": (lambda y, x: np.exp(-x * x) / _HALF_ROOT_PI,),
    "erfc": (lambda y, x: np.exp(-x * x) / -_HALF_ROOT_PI,),
    "erfinv": (lambda y, x: _HALF_ROOT_PI * np.exp(y * y),),
    "gamma": (lambda y, x: y * _polygamma(0, x),),
    "gammaln": (lambda y, x: _polygamma(0, x),),
    "polygamma": (lambda y, x, *, n: _polygamma(n + 1, x),),
    "betaln": (lambda y, a, b: _beta(y, a, b), lambda y, a, b: _beta(y, b, a)),
    "beta": (lambda y, a, b: y * _beta(y, a, b), lambda y, a, b: y * _beta(y, b, a)),
    "gammasgn": (FLAT,),
    "erfcx": (lambda y, x: 2.0 * x * y - 1.0 / _HALF_ROOT_PI,),
    "log_ndtr": (_log_ndtr,),
    "xlogy": (
        lambda y, a, b: _by_factor(np.log, y, a, b, 0.0),
        lambda y, a, b: _by_inner(a, b),
    ),
    "xlog1py": (
        lambda y, a, b: _by_factor(np.log1p, y, a, b, 1.0),
        lambda y, a, b: _by_inner(a, 1.0 + b),
    ),
    "entr": (lambda y, x: -np.log(x) - 1.0,),
    "bessel_i": (_of_bessel_i,),
    "bessel_j": (_of_bessel_j,),
}


# What the gradient of each operation reads; the tape keeps no other values


# The result and the operands, as bits.
Y, A, B, C = 1, 2, 4, 8
NOTHING = 0

# The reads of each operand's gradient; the last one counts for all further operands.
READS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("broadcast_to", "concat", "reshape", "roll", "transpose"), (NOTHING,)),
    **dict.fromkeys(("sum", "mean", "cumsum", "fft", "ifft", "rfft", "irfft"), (NOTHING,)),
    **dict.fromkeys(("eigvalsh", "svdvals"), (NOTHING,)),  # they save the vectors
    "mse_loss": (NOTHING,),  # it saves the difference
    "avg_pool2d": (A,),  # the order in memory: the gradient takes it
    **dict.fromkeys(("gather", "scatter", "tensor_slice"), (B,)),
    "getitem": (B | C,),
    "index": (~(Y | A),),
    **dict.fromkeys(("cholesky", "eig", "eigh", "inv", "qr", "softmax", "svd"), (Y,)),
    **dict.fromkeys(("cumprod", "max", "max_pool2d", "min", "norm", "prod"), (Y | A,)),
    **dict.fromkeys(("det", "pinv", "slogdet"), (Y | A,)),
    "solve": (Y | A, A),
    "lstsq": (Y | A | B, A),
    **dict.fromkeys(("matmul", "batch_matmul", "convolve"), (B, A)),
    "softmax_crossentropy": (B, A),  # it saves the exponentials
    "einsum": (~(Y | A), ~(Y | B), ~(Y | C), ~Y),
    "conv2d": (B, NOTHING),  # it saves the windows
    "layer_norm": (B, NOTHING),  # it saves the standardised rows
}

_TYPE = ("dtype", "ndim", "shape", "size")


def _read_by(slope: Fun | Divisor | Linear | None) -> int:
    """Return what a slope reads: the arguments of which its code uses more than the type."""
    if slope is None:
        return NOTHING
    code = (slope.of if isinstance(slope, (Divisor, Linear)) else slope).__code__
    names = code.co_varnames[isinstance(slope, Linear) : code.co_argcount]
    found = NOTHING
    for instruction, after in pairwise(dis.get_instructions(code)):
        if instruction.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")):
            loaded = instruction.argval  # of several, the last one is what an attribute is of
            loaded = [loaded] if isinstance(loaded, str) else [*loaded]
            if after.opname.startswith("LOAD_ATTR") and after.argval in _TYPE:
                loaded.pop()
            found |= sum(1 << names.index(name) for name in {*loaded}.intersection(names))
    return found


for _name, _row in SLOPES.items():
    OPS[_name].set_reads(tuple(map(_read_by, _row)))
for _name, _reads in READS.items():
    OPS[_name].set_reads(_reads)

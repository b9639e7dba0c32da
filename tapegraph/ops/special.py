"""Operations: the functions of ``tg.special``."""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.arrays.axes import some_axes
from tapegraph.errors import explain, kind_of
from tapegraph.ops.elementwise import exp, log, log1p, logaddexp, mul, neg, sigmoid, sub
from tapegraph.ops.reduce import logsumexp, peak, sum
from tapegraph.recording.numpy_functions import SCIPY, numbers
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, binary, tensor_like, unary
from tapegraph.typed import Array, Axes, of_array, of_second

__all__ = [
    "beta",
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "expit",
    "gamma",
    "gammaln",
    "gammasgn",
    "i0",
    "i1",
    "j0",
    "j1",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "ndtr",
    "polygamma",
    "psi",
    "softplus",
    "xlog1py",
    "xlogy",
]


def of_scipy(name: str) -> Callable[..., Any]:
    """Return SciPy's function of a name, or raise an ImportError that says how to install it."""
    try:
        module = importlib.import_module("scipy.special")
    except ImportError:
        fix = "Install it: pip install scipy."
        missing = "a call in an environment without SciPy"
        raise ImportError(explain(f"special.{name}", missing, "SciPy", fix)) from None
    found: Callable[..., Any] = getattr(module, name)
    return found


def _scipy(name: str) -> Callable[..., Any]:
    """Make a forward of SciPy's function, which is looked up when it is called."""
    return lambda *arrays: _narrowed(of_scipy(name)(*arrays), *arrays)


def _narrowed(out: Any, *arrays: Any) -> Any:
    """Return a result in its operands' float dtype, where a number has widened float32."""
    dtype = np.result_type(*arrays)
    return out.astype(dtype, copy=False) if dtype.kind == "f" else out


@unary("erf", _scipy("erf"))
def erf(x: Any) -> Any:
    """Error function of each element, ``2/sqrt(pi)`` times the integral of exp(-t^2) from 0.

    The derivative is ``2/sqrt(pi) exp(-x^2)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.erf(0.0).item()
    0.0
    """


@unary("erfc", _scipy("erfc"))
def erfc(x: Any) -> Any:
    """``1 - erf(x)`` of each element, precise for large ones.

    The derivative is ``-2/sqrt(pi) exp(-x^2)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.erfc(0.0).item()
    1.0
    """


@unary("erfcx", _scipy("erfcx"))
def erfcx(x: Any) -> Any:
    """``exp(x^2) erfc(x)`` of each element, which does not underflow for large ones.

    The derivative is ``2 x erfcx(x) - 2/sqrt(pi)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.erfcx(0.0).item()
    1.0
    """


@unary("erfinv", _scipy("erfinv"))
def erfinv(x: Any) -> Any:
    """Inverse of the error function of each element, which is between -1 and 1.

    The derivative is ``sqrt(pi)/2 exp(erfinv(x)^2)``, infinite at -1 and 1. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.erfinv(0.0).item()
    0.0
    """


@unary("gamma", _scipy("gamma"))
def gamma(x: Any) -> Any:
    """Gamma function of each element; ``gamma(n + 1)`` is the factorial of ``n``.

    The derivative is ``gamma(x) digamma(x)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.gamma(5.0).item()
    24.0
    """


@unary("gammaln", _scipy("gammaln"))
def gammaln(x: Any) -> Any:
    """Logarithm of the gamma function's absolute value, of each element.

    The derivative is ``digamma(x)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.gammaln(1.0).item()
    0.0
    """


@unary("gammasgn", _scipy("gammasgn"))
def gammasgn(x: Any) -> Any:
    """Sign of the gamma function of each element: 1 or -1, and NaN at its poles below zero.

    The derivative is 0. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.gammasgn([-0.5, 0.5]).data
    array([-1.,  1.])
    """


@of_array
def loggamma(x: Any) -> Any:
    """Logarithm of the gamma function of each element; NaN below zero, where it is complex.

    The derivative is ``digamma(x)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.loggamma(1.0).item()
    0.0
    """
    x = tensor_like("loggamma", x)
    dtype = x.dtype if x.dtype.kind == "f" else np.float64
    return mul(gammaln(x), np.where(numbers(x) < 0, math.nan, 1.0).astype(dtype))


def polygamma_of(n: int, x: Array) -> Any:
    """Return the derivative of order ``n`` of digamma on an array, in its dtype."""
    if n == 0:
        return of_scipy("psi")(x)
    scale = (-1.0) ** (n + 1) * math.factorial(n)
    dtype = x.dtype if x.dtype.kind == "f" else np.float64
    return (scale * of_scipy("zeta")(n + 1.0, x)).astype(dtype, copy=False)


def _polygamma(x: Array, *, n: int) -> Any:
    return polygamma_of(n, x)


POLYGAMMA = Op("polygamma", _polygamma)


@of_second
def polygamma(n: int, x: Any) -> Any:
    """Differentiate ``n`` times the digamma function, at each element.

    Its own derivative is ``polygamma(n + 1, x)``. Needs SciPy.

    Parameters
    ----------
    n : int
        The order, not negative; 0 is `digamma` itself.

    Returns
    -------
    like x

    Raises
    ------
    no SciPy
    TypeError
        ``n`` is not an integer.
    ValueError
        ``n`` is negative.

    >>> round(tg.special.polygamma(1, 1.0).item(), 6)
    1.644934
    """
    try:
        order = operator.index(n)
    except TypeError:
        received = f"{kind_of(n)} for 'n'"
        raise TypeError(explain("special.polygamma", received, "an integer")) from None
    if order < 0:
        raise ValueError(explain("special.polygamma", f"n={order}", "an order of 0 or more"))
    return apply(POLYGAMMA, (tensor_like("polygamma", x),), {"n": order})


@of_array
def digamma(x: Any) -> Any:
    """Digamma function of each element, the derivative of `gammaln`.

    Its own derivative is ``polygamma(1, x)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> round(tg.special.digamma(1.0).item(), 6)
    -0.577216
    """
    return polygamma(0, x)


psi = digamma


@binary("betaln", _scipy("betaln"))
def betaln(a: Any, b: Any) -> Any:
    """Logarithm of the beta function's absolute value, of each pair of elements.

    ``gammaln(a) + gammaln(b) - gammaln(a + b)``, without its cancellation; the derivative by
    ``a`` is ``digamma(a) - digamma(a + b)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.betaln(1.0, 1.0).item()
    0.0
    """


@binary("beta", _scipy("beta"))
def beta(a: Any, b: Any) -> Any:
    """Beta function of each pair of elements, ``gamma(a) gamma(b) / gamma(a + b)``.

    The derivative by ``a`` is ``beta(a, b) (digamma(a) - digamma(a + b))``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.beta(1.0, 1.0).item()
    1.0
    """


@of_array
def ndtr(x: Any) -> Any:
    """Cumulative distribution of the standard normal at each element, ``erfc(-x / sqrt(2)) / 2``.

    The derivative is the density, ``exp(-x^2 / 2) / sqrt(2 pi)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.ndtr(0.0).item()
    0.5
    """
    return mul(erfc(mul(x, -math.sqrt(0.5))), 0.5)


@unary("log_ndtr", _scipy("log_ndtr"))
def log_ndtr(x: Any) -> Any:
    """Logarithm of `ndtr` of each element, precise far below zero and above it.

    The derivative is the density over the distribution, ``sqrt(2/pi) / erfcx(-x / sqrt(2))``.
    Needs SciPy.

    Raises
    ------
    no SciPy

    >>> round(tg.special.log_ndtr(-40.0).item(), 6)
    -804.608442
    """


@of_array
def expit(x: Any) -> Any:
    """Logistic function of each element, ``1 / (1 + exp(-x))``, as `tapegraph.sigmoid`.

    >>> tg.special.expit(0.0).item()
    0.5
    """
    return sigmoid(x)


@of_array
def log_expit(x: Any) -> Any:
    """Logarithm of `expit` of each element, ``-log(1 + exp(-x))``, without overflow.

    The derivative is ``expit(-x)``.

    >>> tg.special.log_expit([-1000.0, 1000.0]).data
    array([-1000.,    -0.])
    """
    return neg(logaddexp(neg(x), 0.0))


@of_array
def logit(x: Any) -> Any:
    """Inverse of `expit`, ``log(x / (1 - x))``, of each element, which is between 0 and 1.

    >>> tg.special.logit(0.5).item()
    0.0
    """
    x = tensor_like("logit", x)
    return sub(log(x), log1p(-x))


@of_array
def softplus(x: Any) -> Any:
    """``log(1 + exp(x))`` of each element, without overflow; its derivative is ``expit(x)``.

    >>> round(tg.special.softplus(0.0).item(), 6)
    0.693147
    """
    return logaddexp(x, 0.0)


def _shift(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the maximum to subtract along axes: no result depends on it, so it is a constant."""
    top = peak(numbers(x), axes)
    return np.where(np.isfinite(top), top, np.zeros((), top.dtype))


@of_array
def log_softmax(x: Any, axis: Axes = None) -> Any:
    """Logarithm of the softmax, ``x - logsumexp(x)``, without overflow.

    Parameters
    ----------
    x : an array of floats
    axis
        The axes along which the exponentials sum to 1; all where not given, as in SciPy.

    Returns
    -------
    like x

    >>> tg.special.log_softmax([0.0, 0.0]).data
    array([-0.69314718, -0.69314718])
    """
    x = tensor_like("log_softmax", x)
    axes = some_axes("log_softmax", axis, x.ndim)
    shifted = sub(x, _shift(x, axes))
    return sub(shifted, log(sum(exp(shifted), axis=axes, keepdims=True)))


# With the logarithm


def _log_times(logarithm: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Make the forward of ``x`` times a logarithm of ``y``, which is 0 where ``x`` is."""

    def forward(x: Any, y: Any) -> Any:
        dtype = np.result_type(x, y)
        dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        factor, inner = np.asarray(x, dtype), np.asarray(y, dtype)
        flat = (factor == 0) & (inner == inner)
        return np.where(flat, 0, factor * logarithm(np.where(flat, 1, inner)))

    return forward


@binary("xlogy", _log_times(np.log))
def xlogy(a: Any, b: Any) -> Any:
    """Product ``a log(b)`` of each pair of elements, and 0 where ``a`` is 0, whatever ``b``.

    The derivative with respect to ``a`` is ``log(b)``, and 0 where ``a`` is 0 and ``b`` is not
    positive; that with respect to ``b`` is ``a / b``, and 0 where ``a`` is 0.

    >>> tg.special.xlogy([0.0, 2.0], [0.0, 1.0]).data
    array([0., 0.])
    """


@binary("xlog1py", _log_times(np.log1p))
def xlog1py(a: Any, b: Any) -> Any:
    """Product ``a log(1 + b)`` of each pair of elements, and 0 where ``a`` is 0, whatever ``b``.

    The derivative with respect to ``a`` is ``log(1 + b)``, and 0 where ``a`` is 0 and ``1 + b`` is
    not positive; that with respect to ``b`` is ``a / (1 + b)``, and 0 where ``a`` is 0.

    >>> tg.special.xlog1py([0.0, 2.0], [-1.0, 0.0]).data
    array([0., 0.])
    """


def _entr(x: Array) -> Any:
    inside = x > 0
    out = -x * np.log(np.where(inside, x, 1.0))
    return _narrowed(np.where(inside | (x != x), out, np.where(x == 0, 0.0, -np.inf)), x)


@unary("entr", _entr)
def entr(x: Any) -> Any:
    """Entropy of each element, ``-x log(x)``: 0 at 0, and minus infinity below.

    The derivative is ``-log(x) - 1``: infinite at 0, and NaN below.

    >>> tg.special.entr([0.0, -1.0]).data
    array([  0., -inf])
    """


# Bessel functions


def bessel_i_of(n: int, x: Any) -> Any:
    """Return the modified Bessel function of the first kind, of a whole order, on an array."""
    return of_scipy(f"i{n}")(x) if n < 2 else of_scipy("iv")(n, x)


def bessel_j_of(n: int, x: Any) -> Any:
    """Return the Bessel function of the first kind, of a whole order, on an array."""
    return of_scipy(f"j{n}")(x) if n < 2 else of_scipy("jv")(n, x)


BESSEL_I = Op("bessel_i", lambda x, *, n: bessel_i_of(n, x))


BESSEL_J = Op("bessel_j", lambda x, *, n: bessel_j_of(n, x))


def bessel(op: Op, n: int, x: Any) -> Any:
    """Record a Bessel function of order ``n``: those of higher orders are its derivatives."""
    return apply(op, (tensor_like(f"{op.name[-1]}{n}", x),), {"n": n})


@of_array
def i0(x: Any) -> Any:
    """Bessel function of the first kind, modified, of order 0, of each element.

    The derivative is `i1`. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.i0(0.0).item()
    1.0
    """
    return bessel(BESSEL_I, 0, x)


@of_array
def i1(x: Any) -> Any:
    """Bessel function of the first kind, modified, of order 1, of each element.

    The derivative is ``(I0(x) + I2(x)) / 2``, which is ``i0(x) - i1(x) / x``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.i1(0.0).item()
    0.0
    """
    return bessel(BESSEL_I, 1, x)


@of_array
def j0(x: Any) -> Any:
    """Bessel function of the first kind, of order 0, of each element.

    The derivative is ``-j1(x)``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.j0(0.0).item()
    1.0
    """
    return bessel(BESSEL_J, 0, x)


@of_array
def j1(x: Any) -> Any:
    """Bessel function of the first kind, of order 1, of each element.

    The derivative is ``(J0(x) - J2(x)) / 2``, which is ``j0(x) - j1(x) / x``. Needs SciPy.

    Raises
    ------
    no SciPy

    >>> tg.special.j1(0.0).item()
    0.0
    """
    return bessel(BESSEL_J, 1, x)


SCIPY.update(
    (function.__name__, function)
    for function in (
        *(erf, erfc, erfcx, erfinv, gamma, gammaln, gammasgn, loggamma, beta, betaln),
        *(expit, logit, log_expit, xlogy, xlog1py, entr, ndtr, log_ndtr, i0, i1, j0, j1),
    )
)


SCIPY["psi"] = digamma

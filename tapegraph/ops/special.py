"""The functions of ``tg.special``."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.arrays import one_integer, some_axes
from tapegraph.errors import message, scipy_module
from tapegraph.kinds import Kind
from tapegraph.ops.elementwise import (
    cbrt,
    exp,
    expm1,
    log,
    log1p,
    logaddexp,
    mul,
    neg,
    sigmoid,
    sub,
)
from tapegraph.ops.reduce import logsumexp, shift_along, sum
from tapegraph.recording.numpy_functions import SCIPY, numbers
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import apply, binary, tensor_like, unary
from tapegraph.typed import Array, ArrayLike, Axes, DuckArray, Fun

__all__ = [
    "beta", "betaln", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "gamma",
    "gammaln", "gammasgn", "i0", "i1", "j0", "j1", "log_expit", "log_ndtr", "log_softmax",
    "loggamma", "logit", "logsumexp", "ndtr", "polygamma", "psi", "softplus", "xlog1py", "xlogy",
]  # fmt: skip


def of_scipy(name: str) -> Fun:
    """Return SciPy's function of a name, or raise an ImportError that says how to install it."""
    return getattr(scipy_module("special", f"special.{name}"), name)


def _scipy(name: str) -> Fun:
    """Make a forward of SciPy's function, which is looked up at the call."""
    return lambda *arrays: _narrowed(of_scipy(name)(*arrays), *arrays)


def _narrowed(out: DuckArray, *arrays: DuckArray) -> DuckArray:
    """Return a result in its operands' float dtype, where a number has widened float32."""
    dtype = np.result_type(*arrays)
    return out.astype(dtype, copy=False) if dtype.kind in "fc" else out


@unary("erf", _scipy("erf"), takes_complex=True)
def erf(x: Kind | ArrayLike, /) -> Kind:
    """Error function, as `scipy.special.erf`, by SciPy; its slope is ``2/sqrt(pi) exp(-x^2)``.

    >>> tg.special.erf(0.0).item()
    0.0
    """


@unary("erfc", _scipy("erfc"), takes_complex=True)
def erfc(x: Kind | ArrayLike, /) -> Kind:
    """``1 - erf(x)``, as `scipy.special.erfc`, by SciPy; its slope is ``-2/sqrt(pi) exp(-x^2)``.

    >>> tg.special.erfc(0.0).item()
    1.0
    """


@unary("erfcx", _scipy("erfcx"))
def erfcx(x: Kind | ArrayLike, /) -> Kind:
    """``exp(x^2) erfc(x)``, as `scipy.special.erfcx`, by SciPy; slope ``2 x y - 2/sqrt(pi)``.

    >>> tg.special.erfcx(0.0).item()
    1.0
    """


@unary("erfinv", _scipy("erfinv"))
def erfinv(x: Kind | ArrayLike, /) -> Kind:
    """Inverse of `erf`, as `scipy.special.erfinv`, by SciPy; its slope is infinite at -1 and 1.

    >>> tg.special.erfinv(0.0).item()
    0.0
    """


@unary("gamma", _scipy("gamma"))
def gamma(x: Kind | ArrayLike, /) -> Kind:
    """Gamma function, as `scipy.special.gamma`, by SciPy; its slope is ``gamma(x) digamma(x)``.

    >>> tg.special.gamma(5.0).item()
    24.0
    """


@unary("gammaln", _scipy("gammaln"))
def gammaln(x: Kind | ArrayLike, /) -> Kind:
    """``log(abs(gamma(x)))``, as `scipy.special.gammaln`, by SciPy; its slope is ``digamma(x)``.

    >>> tg.special.gammaln(1.0).item()
    0.0
    """


@unary("gammasgn", _scipy("gammasgn"))
def gammasgn(x: Kind | ArrayLike, /) -> Kind:
    """Sign of `gamma`, as `scipy.special.gammasgn`, by SciPy; the derivative is 0 everywhere.

    >>> tg.special.gammasgn([-0.5, 0.5]).data
    array([-1.,  1.])
    """


def loggamma(x: Kind | ArrayLike, /) -> Kind:
    """``log(gamma(x))``, NaN below 0, as `scipy.special.loggamma`, by SciPy; slope ``digamma(x)``.

    >>> tg.special.loggamma(1.0).item()
    0.0
    """
    array = tensor_like("loggamma", x)
    dtype = array.dtype if array.dtype.kind == "f" else np.float64
    return mul(gammaln(array), np.where(numbers(array) < 0, math.nan, 1.0).astype(dtype))


def polygamma_of(n: int, x: Array) -> DuckArray:
    """Return the derivative of order ``n`` of digamma on an array, in its dtype."""
    if n == 0:
        return of_scipy("psi")(x)
    scale = (-1.0) ** (n + 1) * math.factorial(n)
    dtype = x.dtype if x.dtype.kind == "f" else np.float64
    return (scale * of_scipy("zeta")(n + 1.0, x)).astype(dtype, copy=False)


POLYGAMMA = Op("polygamma", lambda x, *, n: polygamma_of(n, x), kind=OpKind.ELEMENTWISE)


def polygamma(n: int, x: Kind | ArrayLike) -> Kind:
    """Differentiate `digamma` ``n`` times, as `scipy.special.polygamma`, by SciPy, for one ``n``.

    >>> round(tg.special.polygamma(1, 1.0).item(), 6)
    1.644934
    """
    order = one_integer("special.polygamma", "n", n)
    if order < 0:
        raise ValueError(message("special.polygamma", f"n={order}", "an order of 0 or more"))
    return apply(POLYGAMMA, (tensor_like("polygamma", x),), {"n": order})


def digamma(x: Kind | ArrayLike, /) -> Kind:
    """Slope of `gammaln`, as `scipy.special.digamma`, by SciPy; its own is ``polygamma(1, x)``.

    >>> round(tg.special.digamma(1.0).item(), 6)
    -0.577216
    """
    return polygamma(0, x)


psi = digamma


@binary("betaln", _scipy("betaln"))
def betaln(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """``log(abs(beta(x1, x2)))``, as `scipy.special.betaln`, by SciPy; slopes by `digamma`.

    >>> tg.special.betaln(1.0, 1.0).item()
    0.0
    """


@binary("beta", _scipy("beta"))
def beta(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Beta function, as `scipy.special.beta`, by SciPy; slopes by `digamma`.

    >>> tg.special.beta(1.0, 1.0).item()
    1.0
    """


def ndtr(x: Kind | ArrayLike, /) -> Kind:
    """Cumulative normal distribution, as `scipy.special.ndtr`, by SciPy; its slope is the density.

    >>> tg.special.ndtr(0.0).item()
    0.5
    """
    return mul(erfc(mul(x, -math.sqrt(0.5))), 0.5)


@unary("log_ndtr", _scipy("log_ndtr"))
def log_ndtr(x: Kind | ArrayLike, /) -> Kind:
    """Logarithm of `ndtr`, as `scipy.special.log_ndtr`, by SciPy; its slope never overflows.

    >>> round(tg.special.log_ndtr(-40.0).item(), 6)
    -804.608442
    """


def expit(x: Kind | ArrayLike, /) -> Kind:
    """Logistic function, as `scipy.special.expit` and `tapegraph.sigmoid`.

    >>> tg.special.expit(0.0).item()
    0.5
    """
    return sigmoid(x)


def log_expit(x: Kind | ArrayLike, /) -> Kind:
    """Logarithm of `expit`, as `scipy.special.log_expit`; the derivative is ``expit(-x)``.

    >>> tg.special.log_expit([-1000.0, 1000.0]).data
    array([-1000.,    -0.])
    """
    return neg(logaddexp(neg(x), 0.0))


def logit(x: Kind | ArrayLike, /) -> Kind:
    """Inverse of `expit`, ``log(x / (1 - x))``, as `scipy.special.logit`; slope inf at 0 and 1.

    >>> tg.special.logit(0.5).item()
    0.0
    """
    array = tensor_like("logit", x)
    return sub(log(array), log1p(-array))


def softplus(x: Kind | ArrayLike, /) -> Kind:
    """``log(1 + exp(x))`` of each element, without overflow; its derivative is ``sigmoid(x)``.

    :param x: Any shape, float32 or float64.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> round(tg.softplus(0.0).item(), 6)
    0.693147
    """
    return logaddexp(x, 0.0)


def log_softmax(x: Kind | ArrayLike, axis: Axes = None) -> Kind:
    """``x - logsumexp(x)``, as `scipy.special.log_softmax`; slopes ``(i == j) - softmax(x)[j]``.

    >>> tg.log_softmax([0.0, 0.0]).data
    array([-0.69314718, -0.69314718])
    """
    array = tensor_like("log_softmax", x)
    axes = some_axes("log_softmax", axis, array.ndim)
    shifted = array - shift_along(array, axes)
    return shifted - log(sum(exp(shifted), axis=axes, keepdims=True))


# With the logarithm


def _log_times(logarithm: Fun) -> Callable[[Any, Any], Any]:
    """Make the forward of ``x`` times a logarithm of ``y``, which is 0 where ``x`` is."""

    def forward(x: DuckArray, y: DuckArray) -> DuckArray:
        dtype = np.result_type(x, y)
        dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        factor, inner = np.asarray(x, dtype), np.asarray(y, dtype)
        flat = (factor == 0) & (inner == inner)
        return np.where(flat, 0, factor * logarithm(np.where(flat, 1, inner)))

    return forward


@binary("xlogy", _log_times(np.log))
def xlogy(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """``x1 log(x2)``, and 0 where ``x1`` is 0, as `scipy.special.xlogy`.

    The derivatives are ``log(x2)``, 0 where ``x1`` is 0 and ``x2`` not positive, and ``x1 / x2``.

    >>> tg.special.xlogy([0.0, 2.0], [0.0, 1.0]).data
    array([0., 0.])
    """


@binary("xlog1py", _log_times(np.log1p))
def xlog1py(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """``x1 log(1 + x2)``, 0 where ``x1`` is, as `scipy.special.xlog1py`; slopes as of `xlogy`.

    >>> tg.special.xlog1py([0.0, 2.0], [-1.0, 0.0]).data
    array([0., 0.])
    """


def _entr(x: Array) -> DuckArray:
    inside = x > 0
    out = -x * np.log(np.where(inside, x, 1.0))
    return _narrowed(np.where(inside | (x != x), out, np.where(x == 0, 0.0, -np.inf)), x)


@unary("entr", _entr)
def entr(x: Kind | ArrayLike, /) -> Kind:
    """Entropy, ``-x log(x)``, as `scipy.special.entr`; its slope is ``-log(x) - 1``, NaN below 0.

    >>> tg.special.entr([0.0, -1.0]).data
    array([  0., -inf])
    """


# Bessel functions


def bessel_i_of(n: int, x: DuckArray) -> DuckArray:
    return of_scipy(f"i{n}")(x) if n < 2 else of_scipy("iv")(n, x)


def bessel_j_of(n: int, x: DuckArray) -> DuckArray:
    return of_scipy(f"j{n}")(x) if n < 2 else of_scipy("jv")(n, x)


BESSEL_I = Op("bessel_i", lambda x, *, n: bessel_i_of(n, x), kind=OpKind.ELEMENTWISE)


BESSEL_J = Op("bessel_j", lambda x, *, n: bessel_j_of(n, x), kind=OpKind.ELEMENTWISE)


def bessel(op: Op, n: int, x: DuckArray) -> DuckArray:
    """Record a Bessel function of order ``n``: its derivatives have higher orders."""
    return apply(op, (tensor_like(f"{op.name[-1]}{n}", x),), {"n": n})


def i0(x: Kind | ArrayLike, /) -> Kind:
    """Bessel function, modified, of order 0: `scipy.special.i0`, by SciPy; its slope is ``i1(x)``.

    >>> tg.special.i0(0.0).item()
    1.0
    """
    return bessel(BESSEL_I, 0, x)


def i1(x: Kind | ArrayLike, /) -> Kind:
    """Bessel function, modified, of order 1: `scipy.special.i1`; slope ``(I0(x) + I2(x)) / 2``.

    >>> tg.special.i1(0.0).item()
    0.0
    """
    return bessel(BESSEL_I, 1, x)


def j0(x: Kind | ArrayLike, /) -> Kind:
    """Bessel function of order 0, as `scipy.special.j0`, by SciPy; its slope is ``-j1(x)``.

    >>> tg.special.j0(0.0).item()
    1.0
    """
    return bessel(BESSEL_J, 0, x)


def j1(x: Kind | ArrayLike, /) -> Kind:
    """Bessel function of order 1, as `scipy.special.j1`, by SciPy; slope ``(J0(x) - J2(x)) / 2``.

    >>> tg.special.j1(0.0).item()
    0.0
    """
    return bessel(BESSEL_J, 1, x)


SCIPY.update(
    (function.__name__, function)
    for function in (
        *(erf, erfc, erfcx, erfinv, gamma, gammaln, gammasgn, loggamma, beta, betaln),
        *(expit, logit, log_expit, xlogy, xlog1py, entr, ndtr, log_ndtr, i0, i1, j0, j1),
        *(cbrt, expm1, log1p),  # NumPy's too
    )
)


SCIPY["psi"] = digamma


def __dir__() -> list[str]:
    return sorted(__all__)

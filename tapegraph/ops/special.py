"""Special functions under SciPy's names, ``tg.special``; some need SciPy to be installed."""

from __future__ import annotations

import importlib
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.axes import some_axes
from tapegraph.errors import explain, kind_of
from tapegraph.ir import Array, Op
from tapegraph.ops.elementwise import exp, log, mul, sigmoid, sub
from tapegraph.ops.reduce import sum
from tapegraph.ops.statistics import logsumexp
from tapegraph.ops.transcendental import log1p, logaddexp
from tapegraph.protocol import plain
from tapegraph.record import apply, binary, operand, tensor_like, unary
from tapegraph.typed import Axes, of_array, of_second, of_two

__all__ = [
    "beta",
    "betaln",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "gamma",
    "gammaln",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "polygamma",
    "psi",
    "softplus",
]


def of_scipy(name: str) -> Callable[..., Any]:
    """Return SciPy's function of a name.

    Raises
    ------
    ImportError
        SciPy is not installed.
    """
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

    def forward(*arrays: Any) -> Any:
        out = of_scipy(name)(*arrays)
        dtype = np.result_type(*arrays)  # SciPy computes float32 with a number in float64
        return out.astype(dtype, copy=False) if dtype.kind == "f" else out

    return forward


@unary("erf", _scipy("erf"))
def erf(x: Any) -> Any:
    """Error function of each element, ``2/sqrt(pi)`` times the integral of exp(-t^2) from 0.

    The derivative is ``2/sqrt(pi) exp(-x^2)``. Needs SciPy.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.erf(0.0).item()
    0.0
    """


@unary("erfc", _scipy("erfc"))
def erfc(x: Any) -> Any:
    """``1 - erf(x)`` of each element, precise for large ones.

    The derivative is ``-2/sqrt(pi) exp(-x^2)``. Needs SciPy.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.erfc(0.0).item()
    1.0
    """


@unary("erfinv", _scipy("erfinv"))
def erfinv(x: Any) -> Any:
    """Inverse of the error function of each element, which is between -1 and 1.

    The derivative is ``sqrt(pi)/2 exp(erfinv(x)^2)``, infinite at -1 and 1. Needs SciPy.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.erfinv(0.0).item()
    0.0
    """


@unary("gamma", _scipy("gamma"))
def gamma(x: Any) -> Any:
    """Gamma function of each element; ``gamma(n + 1)`` is the factorial of ``n``.

    The derivative is ``gamma(x) digamma(x)``. Needs SciPy.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.gamma(5.0).item()
    24.0
    """


@unary("gammaln", _scipy("gammaln"))
def gammaln(x: Any) -> Any:
    """Logarithm of the gamma function's absolute value, of each element.

    The derivative is ``digamma(x)``. Needs SciPy.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.gammaln(1.0).item()
    0.0
    """


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
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.
    TypeError
        ``n`` is not an integer.
    ValueError
        ``n`` is negative.

    Examples
    --------
    >>> import tapegraph as tg
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

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
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

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Operands that broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.betaln(1.0, 1.0).item()
    0.0
    """


@of_two
def beta(a: Any, b: Any) -> Any:
    """Beta function of each pair of elements, ``gamma(a) gamma(b) / gamma(a + b)``.

    Needs SciPy.

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Operands that broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.beta(1.0, 1.0).item()
    1.0
    """
    a, b = operand("beta", a, "a"), operand("beta", b, "b")
    size = exp(betaln(a, b))
    x, y = (v if isinstance(v, (int, float)) else plain(v) for v in (a, b))
    if np.all(x > 0) and np.all(y > 0):
        return size
    sign = of_scipy("gammasgn")
    return mul(size, (sign(x) * sign(y) * sign(x + y)).astype(size.dtype, copy=False))


@of_array
def ndtr(x: Any) -> Any:
    """Cumulative distribution of the standard normal at each element, ``erfc(-x / sqrt(2)) / 2``.

    Needs SciPy.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ImportError
        SciPy is not installed.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.ndtr(0.0).item()
    0.5
    """
    return mul(erfc(mul(x, -math.sqrt(0.5))), 0.5)


@of_array
def expit(x: Any) -> Any:
    """Logistic function of each element, ``1 / (1 + exp(-x))``, as `tapegraph.sigmoid`.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.expit(0.0).item()
    0.5
    """
    return sigmoid(x)


@of_array
def logit(x: Any) -> Any:
    """Inverse of `expit`, ``log(x / (1 - x))``, of each element, which is between 0 and 1.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.logit(0.5).item()
    0.0
    """
    x = tensor_like("logit", x)
    return sub(log(x), log1p(-x))


@of_array
def softplus(x: Any) -> Any:
    """``log(1 + exp(x))`` of each element, without overflow; its derivative is ``expit(x)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> round(tg.special.softplus(0.0).item(), 6)
    0.693147
    """
    return logaddexp(x, 0.0)


def _peak(x: Any, axes: tuple[int, ...]) -> Array:
    """Return the maximum to subtract along axes: no result depends on it, so it is a constant."""
    top: Array = np.max(plain(x), axis=axes, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(top), top, np.zeros((), top.dtype))


@of_array
def log_softmax(x: Any, axis: Axes = None) -> Any:
    """Logarithm of the softmax, ``x - logsumexp(x)``, without overflow.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape, float32 or float64.
    axis : int or tuple of int, optional
        The axes along which the exponentials sum to 1; all where not given, as in SciPy.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ValueError
        An axis is out of range or repeated.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.special.log_softmax([0.0, 0.0]).data
    array([-0.69314718, -0.69314718])
    """
    x = tensor_like("log_softmax", x)
    axes = some_axes("log_softmax", axis, x.ndim)
    shifted = sub(x, _peak(x, axes))
    return sub(shifted, log(sum(exp(shifted), axis=axes, keepdims=True)))


# SciPy's ufuncs that record when they are called on a tensor, by name.
_SERVED = {
    f.__name__: f for f in (beta, betaln, erf, erfc, erfinv, expit, gamma, gammaln, logit, ndtr)
}
_SERVED["psi"] = digamma


def recording(called: Any) -> Callable[..., Any] | None:
    """Return the function that records a ufunc of SciPy, or None for any other.

    SciPy is not imported for it: who calls one of its ufuncs has done so.
    """
    name = getattr(called, "__name__", "")
    own = getattr(sys.modules.get("scipy.special"), name, None)
    return _SERVED.get(name) if own is called else None

"""`scipy.stats`: densities of the distributions that autograd differentiates.

A parameter that is out of its range makes the result NaN, and its gradients too. Outside of the
support a density is zero, and the distribution function 0 or 1: constants, of gradient zero. What a
distribution has besides is SciPy's own.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from tapegraph.autograd.boxes import TENSORS, getval, isbox
from tapegraph.autograd.numpy.numpy_wrapper import joined
from tapegraph.autograd.scipy import formula_of, of_scipy, passed_on, primitive_of
from tapegraph.autograd.scipy.special import betainc, gammainc, gammaincc
from tapegraph.autograd.util import submodule
from tapegraph.errors import message, user_line
from tapegraph.ops.special import betaln, gammaln, log_ndtr, ndtr, xlog1py, xlogy
from tapegraph.pytree import mapped
from tapegraph.recording.numpy_functions import peek
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import recorder

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)
INF = math.inf
FINITE = sys.float_info.max
LOG_2PI = math.log(2.0 * math.pi)


def distribution(formulas: K) -> K:
    """Make a module of a class of formulas, each of which is SciPy's own on plain arguments."""
    of_scipys = f"stats.{formulas.__name__}"
    made = {
        name: formula_of(of_scipys)(formula)
        for name, formula in vars(formulas).items()
        if not name.startswith("_")
    }
    name, others = f"{__name__}.{formulas.__name__}", functools.partial(passed_on, of_scipys)
    return cast("K", submodule(name, formulas.__doc__, made, others))


def exp_of(logarithm: F) -> F:
    """Return what a distribution's function is the logarithm of: of ``logpdf`` the ``pdf``."""

    @functools.wraps(logarithm)
    def call(*args: Any, **kwargs: Any) -> Any:
        return np.exp(logarithm(*args, **kwargs))

    call.__name__ = logarithm.__name__[3:]  # after "log"
    call.__doc__ = f"Return the exponential of `{logarithm.__name__}`."
    return cast("F", call)


def standard(x: Any, shapes: Sequence[Any], loc: Any, scale: Any) -> tuple[Any, ...]:
    """Return ``(x - loc) / scale``, the scale and the shape parameters: NaN where they are invalid.

    :param x, loc, scale: Numbers, arrays, tensors, and lists of them.
    :param shapes: Parameters that must be positive, as the scale must.
    """
    x, loc, *parameters = (array_of(part) for part in (x, loc, scale, *shapes))
    scale, *shapes = valid(*(parameter > 0 for parameter in parameters))(*parameters)
    return ((x - loc) / scale, scale, *shapes)


def valid(*conditions: Any) -> Callable[..., list[Any]]:
    """Return what makes NaN of parameters, all of them where one of the conditions fails."""
    holds = functools.reduce(np.logical_and, conditions)
    if _everywhere(holds):
        return lambda *parameters: list(parameters)
    return lambda *parameters: [p * np.where(holds, 1.0, np.nan) for p in parameters]


def inside(
    formula: Callable[[Any], Any], z: Any, high: float, *, below: float, above: float
) -> Any:
    """Return a formula of ``z`` from zero to a bound, where it holds too, and constants beyond."""
    under = z < 0.0
    outside = np.logical_or(under, z > high)
    if _everywhere(np.logical_not(outside)):
        return formula(z)
    found = formula(np.where(outside, min(1.0, 0.5 * high), z))
    return np.where(outside, np.where(under, below, above), found)


def _everywhere(condition: Any) -> bool:
    """Return whether a condition holds for all elements; of captured ones, False."""
    return not recorder().records(condition) and bool(np.all(condition))


def array_of(x: Any) -> Any:
    """Return an argument as SciPy takes it: an array of whatever it holds."""
    x = joined(x) if isinstance(x, (list, tuple)) else x
    return x if isinstance(x, TENSORS) else np.asarray(x)


def checked(module: str, *args: Any, **options: Any) -> Any:
    """Return SciPy's value of `logpdf`, for its shape and for the ValueErrors that it raises."""
    try:
        return of_scipy(f"stats.{module}", "logpdf")(*(mapped(peek, x) for x in args), **options)
    except ValueError as error:
        raise type(error)(f"{module}.logpdf: {error} (at {user_line()})") from error


# Of numbers


@distribution
class norm:
    """The normal distribution."""

    def logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the density."""
        z, scale = standard(x, (), loc, scale)
        return -0.5 * z**2 - np.log(scale) - 0.5 * LOG_2PI

    pdf = exp_of(logpdf)

    def cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the distribution function."""
        return ndtr(standard(x, (), loc, scale)[0])

    def sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the survival function."""
        return ndtr(-standard(x, (), loc, scale)[0])

    def logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the distribution function."""
        return log_ndtr(standard(x, (), loc, scale)[0])

    def logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the survival function."""
        return log_ndtr(-standard(x, (), loc, scale)[0])


@distribution
class gamma:
    """The gamma distribution."""

    def logpdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the density."""
        z, scale, a = standard(x, (a,), loc, scale)

        def formula(z: Any) -> Any:
            return xlogy(a - 1.0, z) - z - gammaln(a) - np.log(scale)

        return inside(formula, z, high=INF, below=-INF, above=-INF)

    pdf = exp_of(logpdf)

    def cdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the distribution function; it has no derivative by ``a``."""
        z, _, a = standard(x, (a,), loc, scale)
        return inside(lambda z: gammainc(a, z), z, high=FINITE, below=0.0, above=1.0)


@distribution
class chi2:
    """The chi-squared distribution: a gamma distribution."""

    def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the density."""
        return gamma.logpdf(x, 0.5 * array_of(df), loc, 2.0 * array_of(scale))

    pdf = exp_of(logpdf)

    def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the distribution function; it has no derivative by ``df``."""
        return gamma.cdf(x, 0.5 * array_of(df), loc, 2.0 * array_of(scale))


@distribution
class beta:
    """The beta distribution."""

    def logpdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the density."""
        z, scale, a, b = standard(x, (a, b), loc, scale)

        def formula(z: Any) -> Any:
            return xlogy(a - 1.0, z) + xlog1py(b - 1.0, -z) - betaln(a, b) - np.log(scale)

        return inside(formula, z, high=1.0, below=-INF, above=-INF)

    pdf = exp_of(logpdf)

    def cdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the distribution function; it has no derivative by ``a`` and ``b``."""
        z, _, a, b = standard(x, (a, b), loc, scale)
        return inside(lambda z: betainc(a, b, z), z, high=1.0, below=0.0, above=1.0)


@distribution
class t:
    """The Student's t distribution."""

    def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the density; of infinite degrees, the normal distribution's."""
        z, scale, df = standard(x, (df,), loc, scale)
        normal = np.equal(df, INF)
        df = np.where(normal, 1.0, df)
        # Not as a difference of two gammaln, whose digits are lost at many degrees.
        normaliser = -betaln(0.5 * df, 0.5) - 0.5 * np.log(df)
        of_t = normaliser - 0.5 * (df + 1.0) * np.log1p(z**2 / df)
        return np.where(normal, -0.5 * z**2 - 0.5 * LOG_2PI, of_t) - np.log(scale)

    pdf = exp_of(logpdf)

    def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the distribution function; it has no derivative by ``df``."""
        z, _, df = standard(x, (df,), loc, scale)
        return _t_cdf(z, df)

    def logcdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        """Return the logarithm of the distribution function; it has no derivative by ``df``."""
        z, _, df = standard(x, (df,), loc, scale)
        return _t_logcdf(z, df)


_t_cdf = primitive_of("stats.t", "cdf", x0=lambda ans, z, df: t.pdf(z, df))
_t_logcdf = primitive_of("stats.t", "logcdf", x0=lambda ans, z, df: np.exp(t.logpdf(z, df) - ans))


# Of counts


@distribution
class poisson:
    """The Poisson distribution."""

    def logpmf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
        """Return the logarithm of the probability of a count; what is no whole number is none."""
        count, mu = _counted(k, mu, loc)
        count = np.where(np.not_equal(count, np.floor(count)) & np.isfinite(count), -1.0, count)

        def formula(count: Any) -> Any:
            return xlogy(count, mu) - gammaln(count + 1.0) - mu

        return inside(formula, count, high=INF, below=-INF, above=-INF)

    pmf = exp_of(logpmf)

    def cdf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
        """Return the probability of at most a count."""
        count, mu = _counted(k, mu, loc)

        def formula(count: Any) -> Any:
            return gammaincc(np.floor(count) + 1.0, mu)

        return inside(formula, count, high=FINITE, below=0.0, above=1.0)


def _counted(k: Any, mu: Any, loc: Any) -> list[Any]:
    k, mu, loc = map(array_of, (k, mu, loc))
    return valid(mu >= 0)(k - loc, mu)


# Of vectors


@distribution
class dirichlet:
    """The Dirichlet distribution."""

    def logpdf(x: Any, alpha: Any) -> Any:
        """Return the logarithm of the density, of components along the first axis.

        The last component may be left out: it is what the others leave of one.
        """
        x, alpha = array_of(x), array_of(alpha)
        shape = np.shape(checked("dirichlet", x, alpha))
        if np.shape(x)[0] < np.shape(alpha)[0]:
            x = np.concatenate([x, np.expand_dims(1.0 - np.sum(x, axis=0), 0)])
        weights = np.reshape(alpha, np.shape(alpha) + (1,) * (np.ndim(x) - 1))
        normaliser = gammaln(np.sum(alpha)) - np.sum(gammaln(alpha))
        return np.reshape(normaliser + np.sum(xlogy(weights - 1.0, x), axis=0), shape)

    pdf = exp_of(logpdf)


@distribution
class multivariate_normal:
    """The multivariate normal distribution."""

    def logpdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """Return the logarithm of the density, of vectors along the last axis."""
        shape = np.shape(_checked_normal(x, mean, cov, allow_singular=allow_singular))
        x, mean, cov = _vectors(x, mean, cov)
        z = x - mean
        n = cov.shape[-1]
        if allow_singular:
            squares, n, logdet = _on_the_support(z, cov)
        else:
            solved = np.linalg.solve(cov, np.reshape(z, (-1, n)).T).T
            squares = np.sum(z * np.reshape(solved, z.shape), axis=-1)
            logdet = np.linalg.slogdet(cov)[1]
        return np.reshape(-0.5 * (squares + n * LOG_2PI + logdet), shape)

    pdf = exp_of(logpdf)

    def entropy(mean: Any = None, cov: Any = 1.0) -> Any:
        """Return the differential entropy, of a covariance that is not singular."""
        _checked_normal(mean, mean, cov)  # SciPy's own takes singular ones
        _, _, cov = _vectors(mean, mean, cov)
        n = cov.shape[-1]
        return 0.5 * (n * (1.0 + LOG_2PI) + np.linalg.slogdet(cov)[1])


def _on_the_support(z: Any, cov: Any) -> tuple[Any, int, Any]:
    """Return the squares, the rank and the logarithm of the determinant where the density lives.

    As SciPy has it: eigenvalues below a million roundings of the largest are zero, and
    outside of the space of the others the density is zero.
    """
    if isbox(cov):
        fix = "Leave allow_singular= away, or differentiate by x and mean."
        received = "a traced cov with allow_singular=True"
        raise NotImplementedError(message("multivariate_normal", received, "a plain one", fix))
    values, vectors = np.linalg.eigh(getval(cov))
    small = 1e6 * np.finfo(values.dtype).eps * np.abs(values).max(initial=0.0)
    kept = values > small
    squares = np.sum((z @ (vectors[:, kept] / np.sqrt(values[kept]))) ** 2, axis=-1)
    if not kept.all():
        off = np.linalg.norm(getval(z) @ vectors[:, ~kept], axis=-1)
        squares = squares + np.where(off < 1e3 * small, 0.0, np.inf)
    return squares, int(kept.sum()), np.log(values[kept]).sum()


def _checked_normal(x: Any, mean: Any, cov: Any, **options: Any) -> Any:
    """Return SciPy's value, and refuse what it refuses, and what is not symmetric besides."""
    value = checked("multivariate_normal", 0.0 if x is None else x, mean, cov, **options)
    plain = np.asarray(mapped(peek, cov))
    if plain.ndim == 2 and abs(plain - plain.T).max() > 1e-5 * abs(plain).max():
        fix = "Write 0.5 * (cov + cov.T), or give both triangles."
        received = "a cov that is not symmetric"
        raise ValueError(message("multivariate_normal.logpdf", received, "a symmetric one", fix))
    return value


def _vectors(x: Any, mean: Any, cov: Any) -> tuple[Any, Any, Any]:
    """Return the arguments as tensors: vectors along a last axis, and a matrix."""
    x, mean, cov = (
        tensor_like("multivariate_normal", array_of(0.0 if part is None else part))
        for part in (x, mean, cov)
    )
    n = max(cov.shape[-1] if cov.ndim else 1, mean.shape[-1] if mean.ndim else 1)
    if cov.ndim < 2:
        cov = np.eye(n) * cov
    if n == 1 and (x.ndim == 0 or x.shape[-1] != 1):
        x = np.expand_dims(x, -1)
    return x, mean, cov


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    fix = "Write its density by tapegraph.autograd.numpy."
    raise AttributeError(message("scipy.stats", repr(name), f"one of {', '.join(__all__)}", fix))

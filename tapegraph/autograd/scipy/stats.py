"""`scipy.stats`: densities of the distributions that autograd differentiates.

Parameters out of range give NaN; outside the support results are constants.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn, Protocol

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
from tapegraph.typed import DuckArray, Fun

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]

INF = math.inf
FINITE = sys.float_info.max
LOG_2PI = math.log(2.0 * math.pi)


def distribution(name: str, formulas: dict[str, Fun]) -> ModuleType:
    """Make a module of formulas, each SciPy's own function on plain arguments."""
    of_scipys = f"stats.{name}"

    def exp_of(logarithm: Fun) -> Fun:
        return lambda *args, **kwargs: np.exp(logarithm(*args, **kwargs))

    logarithms = [function for function in formulas if function.startswith("logp")]  # of densities
    formulas = formulas | {function[3:]: exp_of(formulas[function]) for function in logarithms}
    for function, formula in formulas.items():
        formula.__name__, formula.__doc__ = function, f"Return ``scipy.{of_scipys}.{function}``."
    made = {function: formula_of(of_scipys)(formula) for function, formula in formulas.items()}
    doc = f"The distribution ``scipy.{of_scipys}``."
    return submodule(f"{__name__}.{name}", doc, made, functools.partial(passed_on, of_scipys))


class LocationAndScale(Protocol):
    """The module of a distribution whose only parameters are location and scale."""

    def logpdf(self, x: object, loc: object = 0.0, scale: object = 1.0) -> Any: ...  # noqa: D102
    def pdf(self, x: object, loc: object = 0.0, scale: object = 1.0) -> Any: ...  # noqa: D102
    def logcdf(self, x: object, loc: object = 0.0, scale: object = 1.0) -> Any: ...  # noqa: D102
    def cdf(self, x: object, loc: object = 0.0, scale: object = 1.0) -> Any: ...  # noqa: D102
    def logsf(self, x: object, loc: object = 0.0, scale: object = 1.0) -> Any: ...  # noqa: D102
    def sf(self, x: object, loc: object = 0.0, scale: object = 1.0) -> Any: ...  # noqa: D102


def scaled(name: str, *shapes: str, **formulas: Fun) -> Any:
    """Make a distribution with a location and a scale, and with shape parameters, all positive.

    A formula takes ``(z, scale, *shapes)``, where ``z = (x - loc) / scale``.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    needed = [inspect.Parameter(argument, kind) for argument in ("x", *shapes)]
    given = {"loc": 0.0, "scale": 1.0}.items()
    optional = [inspect.Parameter(argument, kind, default=number) for argument, number in given]
    signature = inspect.Signature([*needed, *optional])

    def at_z(formula: Fun) -> Fun:
        def call(*args: object, **kwargs: object) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            x, *parameters, loc, scale = map(array_of, bound.arguments.values())
            positive = [part > 0 for part in (scale, *parameters)]
            scale, *parameters = valid(positive, scale, *parameters)
            return formula((x - loc) / scale, scale, *parameters)

        return call

    return distribution(name, {function: at_z(f) for function, f in formulas.items()})


def valid(conditions: list[Any], *parameters: DuckArray) -> Sequence[Any]:
    """Return parameters, as NaN where one of the conditions fails."""
    holds = functools.reduce(np.logical_and, conditions)
    if _everywhere(holds):
        return parameters
    return [p * np.where(holds, 1.0, np.nan) for p in parameters]


def within(high: float, formula: Fun, below: float, above: float) -> Fun:
    """Return a formula that holds for ``z`` from zero to a bound, and is constant beyond."""

    def bounded(z: DuckArray, *parameters: DuckArray) -> DuckArray:
        under = z < 0.0
        outside = np.logical_or(under, z > high)
        if _everywhere(np.logical_not(outside)):
            return formula(z, *parameters)
        found = formula(np.where(outside, min(1.0, 0.5 * high), z), *parameters)
        return np.where(outside, np.where(under, below, above), found)

    return bounded


def _everywhere(condition: Any) -> bool:
    """Return whether a condition holds for all elements; False for captured ones."""
    return not recorder().records(condition) and bool(np.all(condition))


def array_of(x: DuckArray) -> DuckArray:
    x = joined(x) if isinstance(x, (list, tuple)) else x
    return x if isinstance(x, TENSORS) else np.asarray(x)


def checked(module: str, *args: object, **options: object) -> DuckArray:
    """Return SciPy's `logpdf`, for its shape and for the ValueErrors that it raises."""
    try:
        return of_scipy(f"stats.{module}", "logpdf")(*(mapped(peek, x) for x in args), **options)
    except ValueError as error:
        raise type(error)(f"{module}.logpdf: {error} (at {user_line()})") from error


# Of numbers: a distribution function has derivatives with respect to x, loc and scale alone

norm: LocationAndScale = scaled(
    "norm",
    logpdf=lambda z, scale: -0.5 * z**2 - np.log(scale) - 0.5 * LOG_2PI,
    cdf=lambda z, scale: ndtr(z),
    sf=lambda z, scale: ndtr(-z),
    logcdf=lambda z, scale: log_ndtr(z),
    logsf=lambda z, scale: log_ndtr(-z),
)
_gamma: dict[str, Fun] = {
    "logpdf": within(
        INF,
        lambda z, scale, a: xlogy(a - 1.0, z) - z - gammaln(a) - np.log(scale),
        below=-INF,
        above=-INF,
    ),
    "cdf": within(FINITE, lambda z, scale, a: gammainc(a, z), below=0.0, above=1.0),
}
gamma = scaled("gamma", "a", **_gamma)
chi2 = scaled(  # a gamma distribution, of half the degrees and twice the scale
    "chi2",
    "df",
    logpdf=lambda z, scale, df: _gamma["logpdf"](0.5 * z, 2.0 * scale, 0.5 * df),
    cdf=lambda z, scale, df: _gamma["cdf"](0.5 * z, 2.0 * scale, 0.5 * df),
)
beta = scaled(
    "beta",
    "a",
    "b",
    logpdf=within(
        1.0,
        lambda z, scale, a, b: (
            xlogy(a - 1.0, z) + xlog1py(b - 1.0, -z) - betaln(a, b) - np.log(scale)
        ),
        below=-INF,
        above=-INF,
    ),
    cdf=within(1.0, lambda z, scale, a, b: betainc(a, b, z), below=0.0, above=1.0),
)


def _t_logpdf(z: DuckArray, scale: DuckArray, df: DuckArray) -> DuckArray:
    normal = np.equal(df, INF)
    df = np.where(normal, 1.0, df)
    # Not as a difference of two gammaln, whose digits are lost at many degrees.
    normaliser = -betaln(0.5 * df, 0.5) - 0.5 * np.log(df)
    of_t = normaliser - 0.5 * (df + 1.0) * np.log1p(z**2 / df)
    return np.where(normal, -0.5 * z**2 - 0.5 * LOG_2PI, of_t) - np.log(scale)


_t_cdf = primitive_of("stats.t", "cdf", x0=lambda ans, z, df: t.pdf(z, df))
_t_logcdf = primitive_of("stats.t", "logcdf", x0=lambda ans, z, df: np.exp(t.logpdf(z, df) - ans))
t: ModuleType = scaled(
    "t",
    "df",
    logpdf=_t_logpdf,
    cdf=lambda z, scale, df: _t_cdf(z, df),
    logcdf=lambda z, scale, df: _t_logcdf(z, df),
)


# Of counts


def _poisson_logpmf(k: DuckArray, mu: DuckArray, loc: DuckArray = 0.0) -> DuckArray:
    k, mu, loc = map(array_of, (k, mu, loc))
    count, mu = valid([mu >= 0], k - loc, mu)
    # A count is a whole number.
    count = np.where(np.not_equal(count, np.floor(count)) & np.isfinite(count), -1.0, count)
    return within(INF, lambda n: xlogy(n, mu) - gammaln(n + 1.0) - mu, -INF, -INF)(count)


def _poisson_cdf(k: DuckArray, mu: DuckArray, loc: DuckArray = 0.0) -> DuckArray:
    k, mu, loc = map(array_of, (k, mu, loc))
    count, mu = valid([mu >= 0], k - loc, mu)
    return within(FINITE, lambda n: gammaincc(np.floor(n) + 1.0, mu), 0.0, 1.0)(count)


poisson = distribution("poisson", {"logpmf": _poisson_logpmf, "cdf": _poisson_cdf})


# Of vectors


def _dirichlet(x: DuckArray, alpha: DuckArray) -> DuckArray:
    """Return the log-density of components along the first axis; the last may be left out."""
    x, alpha = array_of(x), array_of(alpha)
    shape = np.shape(checked("dirichlet", x, alpha))
    if np.shape(x)[0] < np.shape(alpha)[0]:
        x = np.concatenate([x, np.expand_dims(1.0 - np.sum(x, axis=0), 0)])
    weights = np.reshape(alpha, np.shape(alpha) + (1,) * (np.ndim(x) - 1))
    normaliser = gammaln(np.sum(alpha)) - np.sum(gammaln(alpha))
    return np.reshape(normaliser + np.sum(xlogy(weights - 1.0, x), axis=0), shape)


dirichlet = distribution("dirichlet", {"logpdf": _dirichlet})


def _normal(
    x: DuckArray, mean: DuckArray = None, cov: DuckArray = 1.0, allow_singular: bool = False
) -> DuckArray:
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


def _entropy(mean: DuckArray = None, cov: DuckArray = 1.0) -> DuckArray:
    """Return the differential entropy for a covariance that is not singular."""
    _checked_normal(mean, mean, cov)  # SciPy's own takes singular ones
    _, _, cov = _vectors(mean, mean, cov)
    n = cov.shape[-1]
    return 0.5 * (n * (1.0 + LOG_2PI) + np.linalg.slogdet(cov)[1])


multivariate_normal = distribution("multivariate_normal", {"logpdf": _normal, "entropy": _entropy})


def _on_the_support(z: DuckArray, cov: DuckArray) -> tuple[Any, int, Any]:
    """Return squares, rank and log-determinant on the support, with SciPy's thresholds."""
    if isbox(cov):
        fix = "Leave out allow_singular=, or differentiate with respect to x and mean."
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


def _checked_normal(x: DuckArray, mean: DuckArray, cov: DuckArray, **options: object) -> DuckArray:
    """Return SciPy's value; raise for what SciPy refuses, and for covariances without symmetry."""
    value = checked("multivariate_normal", 0.0 if x is None else x, mean, cov, **options)
    plain = np.asarray(mapped(peek, cov))
    if plain.ndim == 2 and abs(plain - plain.T).max() > 1e-5 * abs(plain).max():
        fix = "Write 0.5 * (cov + cov.T), or give both triangles."
        received = "a cov that is not symmetric"
        raise ValueError(message("multivariate_normal.logpdf", received, "a symmetric one", fix))
    return value


def _vectors(x: DuckArray, mean: DuckArray, cov: DuckArray) -> tuple[Any, Any, Any]:
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
    fix = "Write its density with tapegraph.autograd.numpy."
    raise AttributeError(message("scipy.stats", repr(name), f"one of {', '.join(__all__)}", fix))

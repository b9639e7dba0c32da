"""The Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.autograd.scipy import INF, exp_of, formula_of, passed_on, primitive_of, standard
from tapegraph.ops.special import betaln

_of_stats = formula_of("stats.t")


@_of_stats
def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density; of infinite degrees, the normal distribution's."""
    z, scale, df = standard(x, (df,), loc, scale)
    normal = np.equal(df, INF)
    of_t = _logpdf(z, np.where(normal, 1.0, df))
    return np.where(normal, -0.5 * z**2 - 0.5 * math.log(2.0 * math.pi), of_t) - np.log(scale)


def _logpdf(z: Any, df: Any) -> Any:
    # Not as a difference of two gammaln, whose digits are lost at many degrees.
    norm = -betaln(0.5 * df, 0.5) - 0.5 * np.log(df)
    return norm - 0.5 * (df + 1.0) * np.log1p(z**2 / df)


pdf = _of_stats(exp_of(logpdf))
_cdf = primitive_of("stats.t", "cdf", x0=lambda ans, z, df: pdf(z, df))
_logcdf = primitive_of("stats.t", "logcdf", x0=lambda ans, z, df: np.exp(logpdf(z, df) - ans))


@_of_stats
def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``df``."""
    z, _, df = standard(x, (df,), loc, scale)
    return _cdf(z, df)


@_of_stats
def logcdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the distribution function; it has no derivative by ``df``."""
    z, _, df = standard(x, (df,), loc, scale)
    return _logcdf(z, df)


def __getattr__(name: str) -> Any:
    return passed_on("stats.t", name)

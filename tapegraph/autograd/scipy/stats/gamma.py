"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy.of_scipy import formula_of, passed_on
from tapegraph.autograd.scipy.special import gammainc
from tapegraph.autograd.scipy.stats.support import FINITE, INF, inside, standard
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.gamma")


@_of_stats
def logpdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density."""
    z, scale, a = standard(x, (a,), loc, scale)
    return inside(_logpdf, z, a, scale, low=0.0, high=INF, below=-INF, above=-INF)


def _logpdf(z: Any, a: Any, scale: Any) -> Any:
    return xlogy(a - 1.0, z) - z - gammaln(a) - np.log(scale)


@_of_stats
def pdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the density."""
    return np.exp(logpdf(x, a, loc, scale))


@_of_stats
def cdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``a``."""
    z, _, a = standard(x, (a,), loc, scale)
    return inside(_cdf, z, a, low=0.0, high=FINITE, below=0.0, above=1.0)


def _cdf(z: Any, a: Any) -> Any:
    return gammainc(a, z)


def __getattr__(name: str) -> Any:
    """Return SciPy's method of a name."""
    return passed_on("stats.gamma", name)

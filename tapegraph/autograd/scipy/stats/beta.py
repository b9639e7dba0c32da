"""The beta distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy.of_scipy import formula_of, passed_on
from tapegraph.autograd.scipy.special import betainc
from tapegraph.autograd.scipy.stats.support import INF, inside, standard
from tapegraph.ops.special import betaln, xlog1py, xlogy

_of_stats = formula_of("stats.beta")


@_of_stats
def logpdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density."""
    z, scale, a, b = standard(x, (a, b), loc, scale)
    return inside(_logpdf, z, a, b, scale, low=0.0, high=1.0, below=-INF, above=-INF)


def _logpdf(z: Any, a: Any, b: Any, scale: Any) -> Any:
    return xlogy(a - 1.0, z) + xlog1py(b - 1.0, -z) - betaln(a, b) - np.log(scale)


@_of_stats
def pdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the density."""
    return np.exp(logpdf(x, a, b, loc, scale))


@_of_stats
def cdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``a`` and ``b``."""
    z, _, a, b = standard(x, (a, b), loc, scale)
    return inside(_cdf, z, a, b, low=0.0, high=1.0, below=0.0, above=1.0)


def _cdf(z: Any, a: Any, b: Any) -> Any:
    return betainc(a, b, z)


def __getattr__(name: str) -> Any:
    """Return SciPy's method of a name."""
    return passed_on("stats.beta", name)

"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy.of_scipy import formula_of, passed_on
from tapegraph.autograd.scipy.special import gammainc
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.gamma")


@_of_stats
def logpdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density."""
    z = (x - loc) / scale
    return xlogy(a - 1.0, z) - z - gammaln(a) - np.log(scale)


@_of_stats
def pdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the density."""
    return np.exp(logpdf(x, a, loc, scale))


@_of_stats
def cdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``a``."""
    return gammainc(a, (x - loc) / scale)


def __getattr__(name: str) -> Any:
    """Return SciPy's method of a name."""
    return passed_on("stats.gamma", name)

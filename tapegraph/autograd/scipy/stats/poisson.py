"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy.of_scipy import formula_of, passed_on
from tapegraph.autograd.scipy.special import gammaincc
from tapegraph.autograd.scipy.stats.support import FINITE, INF, array_of, inside, valid
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.poisson")


@_of_stats
def logpmf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the logarithm of the probability of a count; what is no whole number is none."""
    count, mu = _standard(k, mu, loc)
    count = np.where(np.not_equal(count, np.floor(count)) & np.isfinite(count), -1.0, count)
    return inside(_logpmf, count, mu, low=0.0, high=INF, below=-INF, above=-INF)


def _logpmf(count: Any, mu: Any) -> Any:
    return xlogy(count, mu) - gammaln(count + 1.0) - mu


@_of_stats
def pmf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the probability of a count."""
    return np.exp(logpmf(k, mu, loc))


@_of_stats
def cdf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the probability of at most a count."""
    count, mu = _standard(k, mu, loc)
    return inside(_cdf, count, mu, low=0.0, high=FINITE, below=0.0, above=1.0)


def _cdf(count: Any, mu: Any) -> Any:
    return gammaincc(np.floor(count) + 1.0, mu)


def _standard(k: Any, mu: Any, loc: Any) -> tuple[Any, Any]:
    k, mu, loc = map(array_of, (k, mu, loc))
    count, mu = valid(mu >= 0)(k - loc, mu)
    return count, mu


def __getattr__(name: str) -> Any:
    """Return SciPy's method of a name."""
    return passed_on("stats.poisson", name)

"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy.of_scipy import formula_of, passed_on
from tapegraph.autograd.scipy.special import gammaincc
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.poisson")


@_of_stats
def logpmf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the logarithm of the probability of a count."""
    count = k - loc
    return xlogy(count, mu) - gammaln(count + 1.0) - mu


@_of_stats
def pmf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the probability of a count."""
    return np.exp(logpmf(k, mu, loc))


@_of_stats
def cdf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the probability of at most a count."""
    return gammaincc(np.floor(k - loc) + 1.0, mu)


def __getattr__(name: str) -> Any:
    """Return SciPy's method of a name."""
    return passed_on("stats.poisson", name)

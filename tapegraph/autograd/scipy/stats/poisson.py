"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy import (
    FINITE,
    INF,
    array_of,
    exp_of,
    formula_of,
    inside,
    passed_on,
    valid,
)
from tapegraph.autograd.scipy.special import gammaincc
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.poisson")


@_of_stats
def logpmf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the logarithm of the probability of a count; what is no whole number is none."""
    count, mu = _standard(k, mu, loc)
    count = np.where(np.not_equal(count, np.floor(count)) & np.isfinite(count), -1.0, count)

    def formula(count: Any) -> Any:
        return xlogy(count, mu) - gammaln(count + 1.0) - mu

    return inside(formula, count, high=INF, below=-INF, above=-INF)


pmf = _of_stats(exp_of(logpmf))


@_of_stats
def cdf(k: Any, mu: Any, loc: Any = 0.0) -> Any:
    """Return the probability of at most a count."""
    count, mu = _standard(k, mu, loc)

    def formula(count: Any) -> Any:
        return gammaincc(np.floor(count) + 1.0, mu)

    return inside(formula, count, high=FINITE, below=0.0, above=1.0)


def _standard(k: Any, mu: Any, loc: Any) -> tuple[Any, Any]:
    k, mu, loc = map(array_of, (k, mu, loc))
    count, mu = valid(mu >= 0)(k - loc, mu)
    return count, mu


def __getattr__(name: str) -> Any:
    return passed_on("stats.poisson", name)

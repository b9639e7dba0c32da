"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from tapegraph.autograd.scipy import array_of, exp_of, formula_of, passed_on
from tapegraph.autograd.scipy.stats import gamma

_of_stats = formula_of("stats.chi2")


@_of_stats
def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density: of a gamma distribution."""
    return gamma.logpdf(x, 0.5 * array_of(df), loc, 2.0 * array_of(scale))


pdf = _of_stats(exp_of(logpdf))


@_of_stats
def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``df``."""
    return gamma.cdf(x, 0.5 * array_of(df), loc, 2.0 * array_of(scale))


def __getattr__(name: str) -> Any:
    return passed_on("stats.chi2", name)

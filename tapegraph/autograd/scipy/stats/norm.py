"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.autograd.scipy import exp_of, formula_of, passed_on, standard
from tapegraph.ops.special import log_ndtr, ndtr

_of_stats = formula_of("stats.norm")


@_of_stats
def logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density."""
    z, scale = standard(x, (), loc, scale)
    return -0.5 * z**2 - np.log(scale) - 0.5 * math.log(2 * math.pi)


pdf = _of_stats(exp_of(logpdf))


@_of_stats
def cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function."""
    return ndtr(standard(x, (), loc, scale)[0])


@_of_stats
def sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the survival function."""
    return ndtr(-standard(x, (), loc, scale)[0])


@_of_stats
def logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the distribution function."""
    return log_ndtr(standard(x, (), loc, scale)[0])


@_of_stats
def logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the survival function."""
    return log_ndtr(-standard(x, (), loc, scale)[0])


def __getattr__(name: str) -> Any:
    return passed_on("stats.norm", name)

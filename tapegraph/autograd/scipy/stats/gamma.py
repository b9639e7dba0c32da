"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy import FINITE, INF, exp_of, formula_of, inside, passed_on, standard
from tapegraph.autograd.scipy.special import gammainc
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.gamma")


@_of_stats
def logpdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density."""
    z, scale, a = standard(x, (a,), loc, scale)

    def formula(z: Any) -> Any:
        return xlogy(a - 1.0, z) - z - gammaln(a) - np.log(scale)

    return inside(formula, z, high=INF, below=-INF, above=-INF)


pdf = _of_stats(exp_of(logpdf))


@_of_stats
def cdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``a``."""
    z, _, a = standard(x, (a,), loc, scale)
    return inside(lambda z: gammainc(a, z), z, high=FINITE, below=0.0, above=1.0)


def __getattr__(name: str) -> Any:
    return passed_on("stats.gamma", name)

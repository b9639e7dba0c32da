"""The beta distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy import INF, exp_of, formula_of, inside, passed_on, standard
from tapegraph.autograd.scipy.special import betainc
from tapegraph.ops.special import betaln, xlog1py, xlogy

_of_stats = formula_of("stats.beta")


@_of_stats
def logpdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the density."""
    z, scale, a, b = standard(x, (a, b), loc, scale)

    def formula(z: Any) -> Any:
        return xlogy(a - 1.0, z) + xlog1py(b - 1.0, -z) - betaln(a, b) - np.log(scale)

    return inside(formula, z, high=1.0, below=-INF, above=-INF)


pdf = _of_stats(exp_of(logpdf))


@_of_stats
def cdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the distribution function; it has no derivative by ``a`` and ``b``."""
    z, _, a, b = standard(x, (a, b), loc, scale)
    return inside(lambda z: betainc(a, b, z), z, high=1.0, below=0.0, above=1.0)


def __getattr__(name: str) -> Any:
    return passed_on("stats.beta", name)

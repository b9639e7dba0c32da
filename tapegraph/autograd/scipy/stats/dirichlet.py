"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.scipy import array_of, checked, exp_of, formula_of, passed_on
from tapegraph.ops.special import gammaln, xlogy

_of_stats = formula_of("stats.dirichlet")


@_of_stats
def logpdf(x: Any, alpha: Any) -> Any:
    """Return the logarithm of the density, of components along the first axis.

    The last component may be left out: it is what the others leave of one.
    """
    x, alpha = array_of(x), array_of(alpha)
    shape = np.shape(checked("stats.dirichlet", "logpdf", x, alpha))
    if np.shape(x)[0] < np.shape(alpha)[0]:
        x = np.concatenate([x, np.expand_dims(1.0 - np.sum(x, axis=0), 0)])
    weights = np.reshape(alpha, np.shape(alpha) + (1,) * (np.ndim(x) - 1))
    norm = gammaln(np.sum(alpha)) - np.sum(gammaln(alpha))
    return np.reshape(norm + np.sum(xlogy(weights - 1.0, x), axis=0), shape)


pdf = _of_stats(exp_of(logpdf))


def __getattr__(name: str) -> Any:
    return passed_on("stats.dirichlet", name)

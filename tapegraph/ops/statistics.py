"""Statistics of samples: covariances and correlations, and histograms as plain results."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.errors import message
from tapegraph.ops.elementwise import clip, conj, div, mul, real, sqrt, sub
from tapegraph.ops.linalg import diagonal, matmul
from tapegraph.ops.reduce import mean, sum
from tapegraph.ops.shape import atleast_2d, concat, expand_dims, squeeze, transpose
from tapegraph.recording.numpy_functions import detached, implements
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["corrcoef", "cov"]


@implements(np.cov)
def cov(
    m: Kind | ArrayLike,
    y: Kind | ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
) -> Kind:
    """Covariances of variables, one a row, as `numpy.cov`; weights carry no gradient.

    Too few observations are an error where NumPy warns, and float32 stays float32.

    >>> tg.cov([[1.0, 3.0], [2.0, 8.0]]).data
    array([[ 2.,  6.],
           [ 6., 18.]])
    """
    name = "cov"
    rows = _variables(name, m, rowvar)
    if y is not None:
        rows = concat([rows, _variables(name, y, rowvar)], axis=0)
    n = rows.shape[1]
    free = (0 if bias else 1) if ddof is None else ddof
    weights: Any = None
    for argument, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            if getattr(given, "requires_grad", False):
                received = f"{argument} that need a gradient"
                raise TypeError(message(name, received, "constants", "Pass w.detach()."))
            w = np.asarray(detached(given))
            if w.shape != (n,) or (w < 0).any():
                received = f"{argument} of shape {w.shape}"
                expected = f"one weight an observation, {n}, none below 0"
                raise ValueError(message(name, received, expected))
            weights = w if weights is None else weights * w
    total = n if weights is None else weights.sum()
    lost = free
    if aweights is not None and total > 0:
        lost = free * (weights * np.asarray(detached(aweights))).sum() / total
    if total - lost <= 0:
        received = f"{total} observations with ddof={free}"
        raise ValueError(message(name, received, "more observations than degrees of freedom lost"))
    if weights is None:
        centred = sub(rows, mean(rows, 1, keepdims=True))
        weighed = centred
    else:
        shares = weights.astype(rows.real.dtype if rows.dtype.kind == "c" else rows.dtype)
        centred = sub(rows, div(sum(mul(rows, shares), 1, keepdims=True), float(total)))
        weighed = mul(centred, shares)
    return squeeze(div(matmul(centred, conj(transpose(weighed))), float(total - lost)))


@implements(np.corrcoef)
def corrcoef(x: Kind | ArrayLike, y: Kind | ArrayLike | None = None, rowvar: bool = True) -> Kind:
    """Correlations of variables, one a row, as `numpy.corrcoef`.

    >>> tg.corrcoef([[1.0, 3.0], [2.0, 8.0]]).data.round(12)
    array([[1., 1.],
           [1., 1.]])
    """
    c: Any = cov(x, y, rowvar)
    if c.ndim == 0:
        return div(c, c)
    spread = sqrt(real(diagonal(c)))
    found = div(c, mul(expand_dims(spread, 1), spread))
    return found if found.dtype.kind == "c" else clip(found, -1.0, 1.0)


def _variables(name: str, value: Any, rowvar: bool) -> Any:
    x = tensor_like(name, value)
    if x.ndim > 2:
        raise ValueError(message(name, f"an array of shape {x.shape}", "at most two axes"))
    if x.dtype.kind not in "fc":
        x = mul(x, 1.0)
    rows = atleast_2d(x)
    return transpose(rows) if not rowvar and x.ndim == 2 else rows


@implements(np.histogram)
def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    """Count as NumPy does, in plain arrays: counts are steps, which have no gradient."""
    if getattr(weights, "requires_grad", False):
        received = "weights that need a gradient"
        fix = "Pass w.detach(), or add them up with a mask for each bin."
        raise TypeError(message("histogram", received, "constants", fix))
    return np.histogram(detached(a), detached(bins), detached(range), density, detached(weights))

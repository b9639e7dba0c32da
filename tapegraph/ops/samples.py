"""Functions known at points: grids, polynomials, interpolation, differences, statistics."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import operator
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from tapegraph.arrays.axes import some_axes
from tapegraph.errors import message
from tapegraph.ops.elementwise import (
    add,
    astype,
    clip,
    conj,
    div,
    floor,
    mod,
    mul,
    real,
    sqrt,
    sub,
    where,
)
from tapegraph.ops.index import getitem, take
from tapegraph.ops.linalg import diagonal, matmul
from tapegraph.ops.reduce import diff, mean, sum
from tapegraph.ops.shape import (
    atleast_2d,
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
    transpose,
)
from tapegraph.recording.node import as_float
from tapegraph.recording.numpy_functions import detached, implements, numbers
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike, Axes, Kind

__all__ = ["corrcoef", "cov", "gradient", "interp", "linspace", "meshgrid", "polyval"]


@implements(np.linspace)
def linspace(
    start: Kind | ArrayLike,
    stop: Kind | ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: npt.DTypeLike | None = None,
    axis: SupportsIndex = 0,
) -> Any:
    """Numbers at equal distances, as `numpy.linspace`, linear in both ends.

    >>> tg.linspace(0.0, tg.param(2.0), 3).data
    array([0., 1., 2.])
    """
    ends = [x if isinstance(x, (int, float)) else tensor_like("linspace", x) for x in (start, stop)]
    count = operator.index(num)
    if count < 0:
        raise ValueError(message("linspace", f"num={num}", "an integer, at least 0"))
    common = np.result_type(*(x.dtype for x in ends if hasattr(x, "dtype")), 1.0)
    parts = np.linspace(0.0, 1.0, count, endpoint=endpoint).astype(common)
    ndim = max(getattr(x, "ndim", 0) for x in ends)
    parts = parts.reshape((count,) + (1,) * ndim)
    first, last = ends
    points: Any = add(mul(first, 1.0 - parts), mul(last, parts))
    points = moveaxis(points, 0, axis) if axis else points
    if dtype is not None:
        whole = np.dtype(dtype).kind in "iu"
        points = astype(floor(points) if whole else points, dtype)
    if not retstep:
        return points
    steps = count - 1 if endpoint else count
    return points, div(sub(last, first), steps) if steps > 0 else np.nan


@implements(np.meshgrid)
def meshgrid(
    *xi: Kind | ArrayLike,
    copy: bool = True,
    sparse: bool = False,
    indexing: Literal["xy", "ij"] = "xy",
) -> tuple[Kind, ...]:
    """Coordinates of a grid from those along its sides, as `numpy.meshgrid`; copied or not.

    >>> x, y = tg.meshgrid([1.0, 2.0], [3.0, 4.0])
    >>> y.data.tolist()
    [[3.0, 3.0], [4.0, 4.0]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(message("meshgrid", f"indexing={indexing!r}", "'xy' or 'ij'"))
    sides: list[Any] = [ravel(tensor_like("meshgrid", x, "xi")) for x in xi]
    places = list(range(len(sides)))
    if indexing == "xy" and len(sides) > 1:
        places[:2] = [1, 0]
    grids = []
    for side, place in zip(sides, places, strict=True):
        grids.append(reshape(side, (1,) * place + (side.size,) + (1,) * (len(sides) - 1 - place)))
    return tuple(grids) if sparse else broadcast_arrays(*grids)


@implements(np.polyval)
def polyval(p: Kind | ArrayLike, x: Kind | ArrayLike) -> Kind:
    """Value of a polynomial, its highest coefficient first, as `numpy.polyval`, by Horner's rule.

    >>> tg.polyval([1.0, 0.0, -1.0], 3.0).item()
    8.0
    """
    coefficients: Any = tensor_like("polyval", p, "p")
    at: Any = tensor_like("polyval", x)
    if coefficients.ndim != 1:
        received = f"p of shape {coefficients.shape}"
        raise ValueError(message("polyval", received, "one axis of coefficients"))
    if not coefficients.shape[0]:
        return mul(at, 0.0)
    value = broadcast_to(getitem(coefficients, 0), at.shape)
    for i in range(1, coefficients.shape[0]):
        value = add(mul(value, at), getitem(coefficients, i))
    return value


@implements(np.interp)
def interp(
    x: Kind | ArrayLike,
    xp: Kind | ArrayLike,
    fp: Kind | ArrayLike,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
) -> Kind:
    """Values between known points by straight lines, as `numpy.interp`; float32 stays float32.

    The derivative is that of the line to the right, and zero outside.

    >>> x = tg.param([0.5, 2.0])
    >>> tg.interp(x, [0.0, 1.0, 3.0], [0.0, 10.0, 14.0]).data
    array([ 5., 12.])
    """
    name = "interp"
    at: Any = tensor_like(name, x)
    knots: Any = tensor_like(name, xp, "xp")
    values: Any = tensor_like(name, fp, "fp")
    if knots.ndim != 1 or knots.shape != values.shape or not knots.shape[0]:
        received = f"xp of shape {knots.shape} and fp of shape {values.shape}"
        raise ValueError(message(name, received, "one axis of one length, at least 1"))
    if period is not None:
        length = abs(as_float(period, name, "period"))
        if not length:
            raise ValueError(message(name, "period=0", "a period other than 0"))
        at, knots = mod(at, length), mod(knots, length)
        order = np.argsort(numbers(knots), kind="stable")
        knots, values = take(knots, order), take(values, order)
        first, last = slice(None, 1), slice(-1, None)
        before, after = getitem(knots, last), getitem(knots, first)
        knots = concat([sub(before, length), knots, add(after, length)])
        values = concat([getitem(values, last), values, getitem(values, first)])
        left = right = None
    lowest, lowest_value = getitem(knots, 0), getitem(values, 0)
    below, above = numbers(at) < numbers(lowest), numbers(at) > numbers(getitem(knots, -1))
    inside = lowest_value
    if knots.shape[0] > 1:
        # Where it is outside, a line would be followed to nowhere.
        kept = where(np.logical_or(below, above), lowest, at)
        ends = np.searchsorted(numbers(knots), numbers(kept), side="right")
        ends = np.minimum(np.maximum(ends, 1), knots.shape[0] - 1)
        x0, x1 = take(knots, ends - 1), take(knots, ends)
        y0, y1 = take(values, ends - 1), take(values, ends)
        width = sub(x1, x0)
        share = div(sub(kept, x0), where(numbers(width) != 0, width, 1.0))
        inside = add(y0, mul(sub(y1, y0), share))
    inside = where(below, lowest_value if left is None else left, inside)
    return where(above, getitem(values, -1) if right is None else right, inside)


@implements(np.gradient)
def gradient(
    f: Kind | ArrayLike,
    *varargs: Kind | ArrayLike,
    axis: Axes = None,
    edge_order: Literal[1, 2] = 1,
) -> Any:
    """Finite differences along axes, of second order inside, as `numpy.gradient`.

    >>> tg.gradient([1.0, 4.0, 9.0, 16.0]).data
    array([3., 4., 6., 7.])
    """
    name = "gradient"
    values: Any = tensor_like(name, f, "f")
    if values.dtype.kind not in "fc":
        values = mul(values, 1.0)
    if edge_order not in (1, 2):
        raise ValueError(message(name, f"edge_order={edge_order!r}", "1 or 2"))
    axes = some_axes(name, axis, values.ndim)
    if isinstance(axis, (tuple, list)):  # NumPy gives them in the order asked for
        axes = tuple(a % values.ndim for a in axis)
    spacings = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    if len(spacings) != len(axes):
        received = f"{len(varargs)} spacings for {len(axes)} axes"
        raise TypeError(message(name, received, "none, one, or one per axis"))
    found = [_rise(values, h, a, edge_order) for h, a in zip(spacings, axes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _rise(values: Any, spacing: Any, axis: int, edge_order: int) -> Any:
    """Return the parabola's slope through three neighbours, and at the ends the line's or its."""
    name = "gradient"
    f = moveaxis(values, axis, -1)
    n = f.shape[-1]
    if n < edge_order + 1:
        received = f"{n} elements along axis {axis}"
        raise ValueError(message(name, received, f"{edge_order + 1} or more"))
    number = isinstance(spacing, (int, float))
    h: Any = spacing if number else tensor_like(name, spacing, "varargs")
    if np.ndim(h) == 0:
        h = mul(h, np.ones(n - 1, f.dtype))
    elif h.shape == (n,):
        h = diff(h)
    else:
        received = f"places of shape {h.shape} along axis {axis} of length {n}"
        raise ValueError(message(name, received, f"one number, or places of shape {(n,)}"))
    if f.dtype.kind == "f":  # the result has the values' dtype
        h = astype(h, f.dtype, copy=False)
    rises = div(sub(_part(f, 1, None), _part(f, None, -1)), h)
    before, after = _part(h, None, -1), _part(h, 1, None)
    sides = add(mul(_part(rises, 1, None), before), mul(_part(rises, None, -1), after))
    inner = div(sides, add(before, after))
    first, last = _part(rises, None, 1), _part(rises, -1, None)
    if edge_order == 2:
        begun, ended = _part(h, None, 1), _part(h, -1, None)
        begun = div(begun, add(begun, _part(h, 1, 2)))
        ended = div(ended, add(ended, _part(h, -2, -1)))
        first = add(first, mul(sub(first, _part(rises, 1, 2)), begun))
        last = add(last, mul(sub(last, _part(rises, -2, -1)), ended))
    return moveaxis(concat([first, inner, last], axis=-1), -1, axis)


def _part(x: Any, start: int | None, stop: int | None) -> Any:
    return getitem(x, (..., slice(start, stop)))


# Statistics


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

    >>> tg.cov([[1.0, 3.0], [2.0, 8.0]]).data.tolist()
    [[2.0, 6.0], [6.0, 18.0]]
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
        weighed = centred = sub(rows, mean(rows, 1, keepdims=True))
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

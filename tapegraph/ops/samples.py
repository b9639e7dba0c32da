"""Functions known at points: grids, polynomials, interpolation, differences, statistics."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import check_one_of, one_integer, some_axes
from tapegraph.errors import message
from tapegraph.kinds import Kind
from tapegraph.numpy_warnings import watched
from tapegraph.ops.elementwise import astype, clip, conj, floor, from_parts, imag, real, sqrt, where
from tapegraph.ops.index import take
from tapegraph.ops.linalg import diagonal
from tapegraph.ops.reduce import diff, mean, sum
from tapegraph.ops.shape import (
    atleast_2d,
    broadcast_arrays,
    concat,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
    transpose,
)
from tapegraph.recording.node import as_float, as_leaf, is_weak
from tapegraph.recording.numpy_functions import detached, implements, numbers
from tapegraph.recording.record import floating, is_complex, real_only, tensor_like
from tapegraph.typed import ArrayLike, Axes, DuckArray

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
    *,
    device: Literal["cpu"] | None = None,
) -> Any:
    """Numbers at equal distances, as `numpy.linspace`, linear in both ends.

    >>> tg.linspace(0.0, tg.param(2.0), 3).data
    array([0., 1., 2.])
    """
    count = one_integer("linspace", "num", num)
    if count < 0:
        raise ValueError(message("linspace", f"num={num}", "an integer, at least 0"))
    if device not in (None, "cpu"):
        raise ValueError(message("linspace", f"device={device!r}", "'cpu'"))
    ends: list[DuckArray] = [
        x if is_weak(x) else tensor_like("linspace", x, argument)
        for x, argument in ((start, "start"), (stop, "stop"))
    ]
    common = np.result_type(*(getattr(x, "dtype", x) for x in ends), 1.0)
    first, last = (
        as_leaf(watched("linspace", np.asarray, x, common))
        if is_weak(x)
        else astype(x, common, copy=False)
        for x in ends
    )
    parts = count - 1 if endpoint else count
    whole = last - first
    numbered = np.arange(count).astype(common).reshape((count,) + (1,) * whole.ndim)
    step: DuckArray = np.nan
    if parts > 0:
        step = whole / parts
        # Of steps too small to be numbers NumPy takes shares of the whole.
        lost = np.any(numbers(step) == 0)
        numbered_by = np.where(lost, *np.array([parts, 1], common))
        points = numbered / numbered_by * where(lost, whole, step)
    else:
        points = numbered * whole
    points = points + first
    if endpoint and count > 1:
        points = where(numbered == count - 1, last, points)
    points = moveaxis(points, 0, axis) if axis else points
    if dtype is not None:
        integers = np.dtype(dtype).kind in "iu"
        points = astype(floor(points) if integers else points, dtype, copy=False)
    return (points, step) if retstep else points


@implements(np.meshgrid)
def meshgrid(
    *xi: Kind | ArrayLike,
    copy: bool = True,
    sparse: bool = False,
    indexing: Literal["xy", "ij"] = "xy",
) -> tuple[Kind, ...]:
    """Coordinates of a grid from those along its sides, as `numpy.meshgrid`; copied or not.

    >>> [x.data.tolist() for x in tg.meshgrid([1.0, 2.0], [3.0, 4.0])]
    [[[1.0, 2.0], [1.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]]]
    """
    check_one_of("meshgrid", "indexing", indexing, "xy", "ij")
    sides: list[DuckArray] = [ravel(tensor_like("meshgrid", x, "xi")) for x in xi]
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
    if isinstance(x, np.poly1d):
        fix = "Compose polynomials with NumPy alone, or multiply them with np.convolve."
        raise TypeError(message("polyval", "a poly1d for 'x'", "numbers", fix))
    coefficients: DuckArray = tensor_like("polyval", p, "p")
    at: DuckArray = tensor_like("polyval", x)
    if coefficients.ndim == 0:
        raise TypeError(message("polyval", "a 0-d array for 'p'", "at least one axis"))
    value: DuckArray = as_leaf(np.zeros(at.shape, at.dtype))
    for i in range(coefficients.shape[0]):
        value = value * at + coefficients[i]
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

    >>> tg.interp([0.5, 2.0], [0.0, 1.0, 3.0], [0.0, 10.0, 14.0]).data
    array([ 5., 12.])
    """
    name = "interp"
    at: DuckArray = tensor_like(name, x)
    knots: DuckArray = tensor_like(name, xp, "xp")
    values: DuckArray = tensor_like(name, fp, "fp")
    if is_complex(at, knots):
        raise real_only(name)
    if knots.ndim != 1 or knots.shape != values.shape or not knots.shape[0]:
        received = f"xp of shape {knots.shape} and fp of shape {values.shape}"
        raise ValueError(message(name, received, "vectors of the same length, at least 1"))
    if period is not None:
        length = abs(as_float(period, name, "period"))
        if not length:
            raise ValueError(message(name, "period=0", "a period other than 0"))
        at, knots = at % length, knots % length
        order = np.argsort(numbers(knots), kind="stable")
        knots, values = take(knots, order), take(values, order)
        knots = concat([knots[-1:] - length, knots, knots[:1] + length])
        values = concat([values[-1:], values, values[:1]])
        left = right = None
    lowest, lowest_value = knots[0], values[0]
    highest, highest_value = knots[-1], values[-1]
    below, above = numbers(at) < numbers(lowest), numbers(at) > numbers(highest)
    # Where it is outside, a line would be followed to nowhere.
    kept = where(np.logical_or(below, above), lowest, at)
    inside = _on_lines(kept, knots, values) if knots.shape[0] > 1 else lowest_value
    inside = where(below, lowest_value if left is None else left, inside)
    return where(above, highest_value if right is None else right, inside)


@np.errstate(all="ignore")  # NumPy's own loop says nothing either
def _on_lines(
    at: DuckArray, knots: DuckArray, values: DuckArray, *, by_inverse: bool = False
) -> DuckArray:
    """Follow the line from the knot before each place; at a knot return its value."""
    if is_complex(values):  # whose parts have their own infinities
        parts = (_on_lines(at, knots, part(values), by_inverse=True) for part in (real, imag))
        first, second = parts
        return from_parts(first, where(np.isnan(numbers(at)), 0.0, second))
    dtype = np.result_type(at.dtype, knots.dtype, values.dtype, np.float32)
    at, knots, values = (astype(v, dtype, copy=False) for v in (at, knots, values))
    places = np.searchsorted(numbers(knots), numbers(at), side="right")
    places = np.minimum(np.maximum(places, 1), knots.shape[0] - 1)
    x0, x1 = take(knots, places - 1), take(knots, places)
    y0, y1 = take(values, places - 1), take(values, places)
    width = x1 - x0
    width = where(numbers(width) != 0, width, 1.0)
    rise = y1 - y0
    slope = rise * (1.0 / width) if by_inverse else rise / width
    last = numbers(at) == numbers(x1)
    before, after = (_from_knot(at, slope, x, y) for x, y in ((x0, y0), (x1, y1)))
    found = where(last, after, where(np.isnan(numbers(before)), after, before))
    on_knot = np.logical_and(np.isnan(numbers(before)), numbers(at) == numbers(x0))
    equal = np.logical_and(numbers(y0) == numbers(y1), ~np.isnan(numbers(at)))
    nowhere = np.logical_and(np.isnan(numbers(found)), np.logical_or(last, equal))
    return where(np.logical_or(on_knot, nowhere), where(last, y1, y0), found)


def _from_knot(at: DuckArray, slope: DuckArray, x: DuckArray, y: DuckArray) -> DuckArray:
    # At the knot itself the addend is -0.0, which changes no number.
    way = where(np.signbit(numbers(slope)), at - x + 0.0, -(x - at + 0.0))
    return slope * way + y


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
    values: DuckArray = floating(name, f, "f")
    check_one_of(name, "edge_order", edge_order, 1, 2)
    axes = some_axes(name, axis, values.ndim)
    if isinstance(axis, (tuple, list)):  # NumPy gives them in the order asked for
        axes = tuple(a % values.ndim for a in axis)
    spacings: tuple[DuckArray, ...] = varargs or (1.0,)
    if len(spacings) == 1 and np.ndim(spacings[0]) == 0:
        spacings *= len(axes)
    if len(spacings) != len(axes):
        received = f"{len(varargs)} spacings for {len(axes)} axes"
        raise TypeError(message(name, received, "none, one number, or one per axis"))
    found = [_rise(values, h, a, edge_order) for h, a in zip(spacings, axes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _rise(values: DuckArray, spacing: DuckArray, axis: int, edge_order: int) -> DuckArray:
    """Return the slope at each element by its neighbours, at the ends by the next ones."""
    name = "gradient"
    f = moveaxis(values, axis, -1)
    n = f.shape[-1]
    if n < edge_order + 1:
        received = f"{n} elements along axis {axis}"
        raise ValueError(message(name, received, f"{edge_order + 1} or more"))
    number = is_weak(spacing)
    h: DuckArray = spacing if number else tensor_like(name, spacing, "varargs")
    if not number and h.ndim and h.shape != (n,):
        received = f"coordinates of shape {h.shape} along axis {axis} of length {n}"
        raise ValueError(message(name, received, f"one number, or coordinates of shape {(n,)}"))
    if number or not h.ndim:
        slopes = _even_slopes(f, h, edge_order)
    else:
        h = diff(floating(name, h))
        # By the places themselves the even formula has another derivative.
        even = not h.requires_grad and np.all(numbers(h) == numbers(h)[0])
        if isinstance(even, (bool, np.bool_)):
            slopes = _even_slopes(f, h[0], edge_order) if even else _slopes(f, h, edge_order)
        else:  # of a program, or of many examples
            slopes = where(even, _even_slopes(f, h[0], edge_order), _slopes(f, h, edge_order))
    return moveaxis(astype(slopes, f.dtype, copy=False), -1, axis)


def _even_slopes(f: DuckArray, h: DuckArray, edge_order: int) -> DuckArray:
    inner = (f[..., 2:] - f[..., :-2]) / (2.0 * h)
    if edge_order == 1:
        first, last = (f[..., 1:2] - f[..., :1]) / h, (f[..., -1:] - f[..., -2:-1]) / h
    else:
        first = _weighed(f, 0, -1.5 / h, 2.0 / h, -0.5 / h)
        last = _weighed(f, -3, 0.5 / h, -2.0 / h, 1.5 / h)
    return concat([first, inner, last], axis=-1)


def _slopes(f: DuckArray, h: DuckArray, edge_order: int) -> DuckArray:
    """Return the slopes of parabolas through three neighbours; at the ends by ``edge_order``."""
    before, after = h[:-1], h[1:]
    both = before + after
    inner = (
        -after / (before * both) * f[..., :-2]
        + (after - before) / (before * after) * f[..., 1:-1]
        + before / (after * both) * f[..., 2:]
    )
    if edge_order == 1:
        first = (f[..., 1:2] - f[..., :1]) / h[:1]
        last = (f[..., -1:] - f[..., -2:-1]) / h[-1:]
        return concat([first, inner, last], axis=-1)
    a, b = h[:1], h[1:2]
    first = _weighed(f, 0, -(a * 2.0 + b) / (a * (a + b)), (a + b) / (a * b), -a / (b * (a + b)))
    a, b = h[-2:-1], h[-1:]
    last = _weighed(f, -3, b / (a * (a + b)), -(b + a) / (a * b), (b * 2.0 + a) / (b * (a + b)))
    return concat([first, inner, last], axis=-1)


def _weighed(f: DuckArray, start: int, *weights: DuckArray) -> DuckArray:
    """Add elements of the last axis from a place on times three weights, one after the other."""
    a, b, c = (w * f[..., i : i + 1 or None] for i, w in enumerate(weights, start))
    return a + b + c


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
    *,
    dtype: npt.DTypeLike | None = None,
) -> Kind:
    """Covariances, as `numpy.cov`; weights carry no gradient, too few observations are an error.

    >>> tg.cov([[1.0, 3.0], [2.0, 8.0]]).data.tolist()
    [[2.0, 6.0], [6.0, 18.0]]
    """
    name = "cov"
    rows = _variables(name, m, rowvar)
    if y is not None:
        rows = concat([rows, _variables(name, y, rowvar)], axis=0)
    if dtype is not None:
        rows = astype(rows, dtype, copy=False)
    if ddof is not None and ddof != int(ddof):
        raise ValueError(message(name, f"ddof={ddof}", "an integer"))
    n = rows.shape[1]
    free = (0 if bias else 1) if ddof is None else ddof
    weights: DuckArray = None
    for argument, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            if getattr(given, "requires_grad", False):
                received = f"{argument} that need a gradient"
                raise TypeError(message(name, received, "constants", "Pass w.detach()."))
            w = np.asarray(detached(given))
            if w.shape != (n,) or (w < 0).any():
                received = f"{argument} of shape {w.shape}"
                expected = f"{n} weights, one per observation, none negative"
                raise ValueError(message(name, received, expected))
            if argument == "fweights" and (w != np.rint(w)).any():
                raise TypeError(message(name, "fweights with fractions", "whole numbers"))
            weights = w if weights is None else weights * w
    total = n if weights is None else weights.sum()
    lost = free
    if aweights is not None and total > 0:
        lost = free * (weights * np.asarray(detached(aweights))).sum() / total
    if total - lost <= 0:
        received = f"{total} observations with ddof={free}"
        raise ValueError(message(name, received, "more observations than degrees of freedom lost"))
    if weights is None:
        weighed = centred = rows - mean(rows, 1, keepdims=True)
    else:
        shares = weights.astype(rows.real.dtype if rows.dtype.kind == "c" else rows.dtype)
        centred = rows - sum(rows * shares, 1, keepdims=True) / float(total)
        weighed = centred * shares
    return squeeze(centred @ conj(transpose(weighed)) * (1.0 / float(total - lost)))


@implements(np.corrcoef)
def corrcoef(x: Kind | ArrayLike, y: Kind | ArrayLike | None = None, rowvar: bool = True) -> Kind:
    """Correlations of variables, one a row, as `numpy.corrcoef`.

    >>> tg.corrcoef([[1.0, 3.0], [2.0, 8.0]]).data.round(12).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    c: DuckArray = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    spread = sqrt(real(diagonal(c)))
    found = c / expand_dims(spread, 1) / spread
    if found.dtype.kind == "c":
        return from_parts(*(clip(part(found), -1.0, 1.0) for part in (real, imag)))
    return clip(found, -1.0, 1.0)


def _variables(name: str, value: DuckArray, rowvar: bool) -> DuckArray:
    x = floating(name, value)
    if x.ndim > 2:
        raise ValueError(message(name, f"an array of shape {x.shape}", "at most two axes"))
    rows = atleast_2d(x)
    return transpose(rows) if not rowvar and x.ndim == 2 else rows


@implements(np.histogram)
def _histogram(
    a: DuckArray,
    bins: DuckArray = 10,
    range: Any = None,
    density: Any = None,
    weights: DuckArray = None,
) -> DuckArray:
    """Count as NumPy does, in plain arrays: counts are steps, which have no gradient."""
    if getattr(weights, "requires_grad", False):
        received = "weights that need a gradient"
        fix = "Pass w.detach(), or add them up with a mask for each bin."
        raise TypeError(message("histogram", received, "constants", fix))
    return np.histogram(detached(a), detached(bins), detached(range), density, detached(weights))

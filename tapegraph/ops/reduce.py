"""Operations over axes: sums, extremes, statistics, softmax."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import check_spreads, one_axis, one_integer, ordered_axes, some_axes
from tapegraph.errors import kind_of, message
from tapegraph.kinds import Kind, Operand
from tapegraph.ops.elementwise import (
    add,
    astype,
    conj,
    div,
    exp,
    imag,
    limits_of,
    log,
    maximum,
    minimum,
    mul,
    real,
    sqrt,
    sub,
)
from tapegraph.ops.elementwise import where as choose_by
from tapegraph.ops.index import getitem
from tapegraph.ops.shape import broadcast_to, concat, moveaxis, permuted, reshape
from tapegraph.recording import node as nodes
from tapegraph.recording.node import as_float, as_leaf, numeric, real_dtype
from tapegraph.recording.numpy_functions import (
    array_of,
    implements,
    numbers,
    peek,
    without_gradient,
)
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import apply, floating, is_complex, real_only, tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array, ArrayLike, Axes, DType, DuckArray, Fun

__all__ = [
    "average", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "logsumexp", "max",
    "mean", "median", "min", "nanmax", "nanmean", "nanmin", "nanstd", "nansum", "nanvar",
    "percentile", "prod", "ptp", "quantile", "softmax", "std", "sum", "trapezoid", "var",
]  # fmt: skip

T = TypeVar("T")

# ndarray.sum would warn at a line of NumPy's. (NumPy's types know no keepdims that varies.)
add_up: Any = np.add.reduce


# Rows of fewer numbers NumPy adds up from left to right, and many rows in the time of many calls.
_SHORT, _MANY = 8, 256


def _sum(x: Array, *, axis: tuple[int, ...], keepdims: bool) -> DuckArray:
    along = None if len(axis) == x.ndim else axis  # NumPy then takes contiguous memory in one run
    length = x.shape[-1] if along == (x.ndim - 1,) else 0
    if 1 < length < _SHORT and x.size >= _MANY * length and x.dtype.char in "fd":
        total = x[..., 0] + 0.0  # as NumPy, which begins with 0.0
        for place in range(1, length):  # column by column, with the same bits
            total += x[..., place]
        return total[..., None] if keepdims else total
    return add_up(x, axis=along, keepdims=keepdims)


def _mean(x: Array, *, axis: tuple[int, ...], keepdims: bool) -> DuckArray:
    dtype = None if x.dtype.kind in "fc" else np.float64
    along = None if len(axis) == x.ndim else axis
    return add_up(x, axis=along, dtype=dtype, keepdims=keepdims) / _count(x.shape, axis)


def _softmax(x: Array, *, axis: int) -> DuckArray:
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    shifted: Array = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    shifted = np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=axis, keepdims=True)
    return shifted


SUM = Op("sum", _sum, kind=OpKind.REDUCTION, takes_complex=True)
MEAN = Op("mean", _mean, kind=OpKind.REDUCTION, takes_complex=True)
SOFTMAX = Op("softmax", _softmax, kind=OpKind.ALONG)


@implements(np.sum)
def sum(
    a: Kind | ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: npt.DTypeLike | None = None,
    initial: Kind | ArrayLike | None = None,
    where: Operand | None = None,
) -> Kind:
    """Sum over all elements or over some axes, as `numpy.sum`; gradients flow to ``initial`` too.

    >>> tg.sum([[1.0, 2.0], [3.0, 4.0]], axis=0).data
    array([4., 6.])
    """
    x = tensor_like("sum", a, "a")
    if dtype is not None:
        x = astype(x, dtype, copy=False)
    if where is not None:
        x = _among("sum", x, where, 0)
    total = apply(SUM, (x,), {"axis": some_axes("sum", axis, x.ndim), "keepdims": bool(keepdims)})
    if dtype is not None:  # sums of small integers are wider
        total = astype(total, dtype, copy=False)
    return total if initial is None else add(_start("sum", initial, total), total)


@implements(np.mean)
def mean(
    a: Kind | ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: npt.DTypeLike | None = None,
    where: Operand | None = None,
) -> Kind:
    """Mean over all elements or some axes, as `numpy.mean`; each derivative is ``1 / n``.

    >>> tg.mean([[1.0, 2.0], [3.0, 4.0]]).item()
    2.5
    """
    x = tensor_like("mean", a, "a")
    if dtype is not None:
        x = astype(x, dtype, copy=False)
    axes = some_axes("mean", axis, x.ndim)
    if where is None:
        return apply(MEAN, (x,), {"axis": axes, "keepdims": bool(keepdims)})
    x = floating("mean", x)
    total = sum(_among("mean", x, where, 0), axes, keepdims)
    return div(total, _how_many("mean", x, where, axes, keepdims))


def softmax(x: Kind | ArrayLike, axis: SupportsIndex = -1) -> Kind:
    """Softmax along one axis, ``exp(x - max) / sum(exp(x - max))``.

    :param x: At least one axis, float32 or float64.
    :param axis: The axis whose elements sum to 1.
    :returns: Tensor of ``x``'s shape and dtype.
    :raises ValueError: ``x`` has no axis, or the axis is out of range.

    >>> tg.softmax([0.0, 0.0]).data
    array([0.5, 0.5])
    """
    array = tensor_like("softmax", x)
    if array.ndim == 0:
        expected = "at least one axis"
        raise ValueError(message("softmax", "a 0-d array", expected, "Write x.reshape(1)."))
    return apply(SOFTMAX, (array,), {"axis": one_axis("softmax", axis, array.ndim)})


MAX = Op("max", np.maximum.reduce, kind=OpKind.REDUCTION)
MIN = Op("min", np.minimum.reduce, kind=OpKind.REDUCTION)
PROD = Op("prod", np.multiply.reduce, kind=OpKind.REDUCTION, takes_complex=True)
CUMSUM = Op("cumsum", np.add.accumulate, kind=OpKind.ALONG, takes_complex=True)
CUMPROD = Op("cumprod", np.multiply.accumulate, kind=OpKind.ALONG, takes_complex=True)


# Arguments of NumPy's reductions besides axes


def _mask(op: str, x: DuckArray, where: DuckArray) -> DuckArray:
    mask = array_of(where)
    check_spreads(op, "where", mask.shape, x.shape)
    if mask.dtype != np.bool_:
        fix = "Compare it, as in x > 0."
        raise TypeError(message(op, f"{kind_of(mask)} for 'where'", "an array of bools", fix))
    return mask


def _among(op: str, x: DuckArray, where: DuckArray, neutral: DuckArray) -> DuckArray:
    """Replace the elements that ``where`` leaves out by a neutral number."""
    return choose_by(_mask(op, x, where), x, as_leaf(np.asarray(neutral, x.dtype)))


def _how_many(
    op: str, x: DuckArray, where: DuckArray, axes: tuple[int, ...], keepdims: bool
) -> DuckArray:
    """Return how many elements ``where`` takes, in the dtype of the tensor's real parts."""
    taken = np.broadcast_to(_mask(op, x, where), x.shape)
    return np.sum(taken, axis=axes, keepdims=keepdims).astype(real_dtype(x.dtype))


def _start(op: str, initial: DuckArray, result: DuckArray) -> DuckArray:
    number = tensor_like(op, initial, "initial")
    if number.ndim:
        raise ValueError(message(op, f"'initial' of shape {number.shape}", "one number"))
    return astype(number, result.dtype, copy=False)


# Axes


def _operand(op: str, a: DuckArray, axis: object) -> tuple[Any, tuple[int, ...]]:
    x = tensor_like(op, a, "a")
    return x, some_axes(op, axis, x.ndim)


def last_order(ndim: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*(a for a in range(ndim) if a not in axes), *axes)


def kept_shape(shape: tuple[T, ...], axes: tuple[int, ...]) -> tuple[T | int, ...]:
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[a] for a in axes])


# Extremes


@implements(np.max, np.amax)
def max(
    a: Kind | ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    initial: Kind | ArrayLike | None = None,
    where: Operand | None = None,
) -> Kind:
    """Maximum, as `numpy.max`; equal maxima, or NaN, share the gradient evenly.

    >>> tg.max([[1.0, 5.0], [3.0, 4.0]], axis=1).data
    array([5., 4.])
    """
    return _extreme(MAX, a, axis, keepdims, initial, where)


@implements(np.min, np.amin)
def min(
    a: Kind | ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    initial: Kind | ArrayLike | None = None,
    where: Operand | None = None,
) -> Kind:
    """Minimum, as `numpy.min`; equal minima, or NaN, share the gradient evenly.

    >>> tg.min([[1.0, 5.0], [3.0, 4.0]], axis=1).data
    array([1., 3.])
    """
    return _extreme(MIN, a, axis, keepdims, initial, where)


def _extreme(
    op: Op,
    a: DuckArray,
    axis: object,
    keepdims: bool,
    initial: DuckArray = None,
    where: DuckArray = None,
) -> DuckArray:
    x, axes = _operand(op.name, a, axis)
    attrs = {"axis": axes, "keepdims": bool(keepdims)}
    if initial is not None:
        start = _start(op.name, initial, x)
        if not _count(x.shape, axes):
            kept = kept_shape(x.shape, axes)
            left = kept if keepdims else tuple(n for i, n in enumerate(kept) if i not in axes)
            return broadcast_to(start, left)
        if where is not None:
            least, most = limits_of(x.dtype)
            x = _among(op.name, x, where, least if op is MAX else most)
        further = maximum if op is MAX else minimum
        return further(start, apply(op, (x,), attrs))
    if where is not None:
        fix = f"NumPy's {op.name} needs it for rows without selected elements."
        raise ValueError(message(op.name, "where= without initial=", "initial= as well", fix))
    if not _count(x.shape, axes) and all(kept_shape(x.shape, axes)):
        expected = "at least one element along the axes to search"
        raise ValueError(message(op.name, f"shape {x.shape} with axis {axis}", expected))
    return apply(op, (x,), attrs)


@implements(np.ptp)
def ptp(a: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """``max(a) - min(a)`` over all elements or some axes, as `numpy.ptp`, with their gradients.

    >>> tg.ptp([1.0, 5.0, 3.0]).item()
    4.0
    """
    x = tensor_like("ptp", a, "a")
    return sub(max(x, axis, keepdims), min(x, axis, keepdims))


@implements(np.nanmax)
def nanmax(a: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """Maximum of all but NaNs, as `numpy.nanmax`, without a warning; equal ones share the gradient.

    >>> tg.nanmax([1.0, float("nan"), 3.0]).item()
    3.0
    """
    return _present_extreme(MAX, -math.inf, "nanmax", a, axis, keepdims)


@implements(np.nanmin)
def nanmin(a: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """Minimum of all but NaNs, as `numpy.nanmin`, without a warning; equal ones share the gradient.

    >>> tg.nanmin([1.0, float("nan"), 3.0]).item()
    1.0
    """
    return _present_extreme(MIN, math.inf, "nanmin", a, axis, keepdims)


def _present_extreme(
    op: Op, worst: float, name: str, a: DuckArray, axis: object, keepdims: bool
) -> DuckArray:
    x, axes = _operand(name, a, axis)
    if x.dtype.kind != "f":
        return _extreme(op, x, axis, keepdims)
    missing = np.isnan(numbers(x))
    found = _extreme(op, choose_by(missing, worst, x), axis, keepdims)
    return choose_by(np.all(missing, axis=axes, keepdims=keepdims), math.nan, found)


# Products and running sums


@implements(np.prod)
def prod(
    a: Kind | ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: npt.DTypeLike | None = None,
    initial: Kind | ArrayLike | None = None,
    where: Operand | None = None,
) -> Kind:
    """Product, as `numpy.prod`; its gradient is exact where elements are zero.

    >>> tg.prod([[1.0, 2.0], [3.0, 4.0]], axis=0).data
    array([3., 8.])
    """
    x = tensor_like("prod", a, "a")
    if dtype is not None:
        x = astype(x, dtype, copy=False)
    if where is not None:
        x = _among("prod", x, where, 1)
    axes = some_axes("prod", axis, x.ndim)
    product = apply(PROD, (x,), {"axis": axes, "keepdims": bool(keepdims)})
    if dtype is not None:
        product = astype(product, dtype, copy=False)
    return product if initial is None else mul(_start("prod", initial, product), product)


@implements(np.cumsum)
def cumsum(
    a: Kind | ArrayLike, axis: SupportsIndex | None = None, *, dtype: npt.DTypeLike | None = None
) -> Kind:
    """Partial sums along an axis, as `numpy.cumsum`.

    >>> tg.cumsum([1.0, 2.0, 3.0]).data
    array([1., 3., 6.])
    """
    return _running(CUMSUM, a, axis, dtype)


@implements(np.cumprod)
def cumprod(
    a: Kind | ArrayLike, axis: SupportsIndex | None = None, *, dtype: npt.DTypeLike | None = None
) -> Kind:
    """Partial products along an axis, as `numpy.cumprod`; the gradient is exact beside zeros too.

    >>> tg.cumprod([1.0, 2.0, 3.0]).data
    array([1., 2., 6.])
    """
    return _running(CUMPROD, a, axis, dtype)


def cumulative_sum(
    x: Kind | ArrayLike,
    /,
    *,
    axis: SupportsIndex | None = None,
    dtype: npt.DTypeLike | None = None,
    include_initial: bool = False,
) -> Kind:
    """Partial sums along an axis, as `numpy.cumulative_sum`, from an empty one if wanted.

    >>> tg.cumulative_sum([1.0, 2.0, 3.0], include_initial=True).data
    array([0., 1., 3., 6.])
    """
    return _cumulative("cumulative_sum", CUMSUM, np.zeros, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Kind | ArrayLike,
    /,
    *,
    axis: SupportsIndex | None = None,
    dtype: npt.DTypeLike | None = None,
    include_initial: bool = False,
) -> Kind:
    """Partial products along an axis, as `numpy.cumulative_prod`, from an empty one if wanted.

    >>> tg.cumulative_prod([1.0, 2.0, 3.0], include_initial=True).data
    array([1., 1., 2., 6.])
    """
    return _cumulative("cumulative_prod", CUMPROD, np.ones, x, axis, dtype, include_initial)


if hasattr(np, "cumulative_sum"):  # new in NumPy 2.1
    implements(np.cumulative_sum)(cumulative_sum)
    implements(np.cumulative_prod)(cumulative_prod)


def _cumulative(
    name: str,
    op: Op,
    empty: Fun,
    a: DuckArray,
    axis: SupportsIndex | None,
    dtype: object,
    include_initial: bool,
) -> DuckArray:
    x = tensor_like(name, a)
    if x.ndim > 1 and axis is None:
        raise ValueError(message(name, f"no axis for shape {x.shape}", "an axis"))
    results = _running(op, x, axis, dtype)
    if not include_initial:
        return results
    along = 0 if axis is None else one_axis(name, axis, results.ndim)
    shape = (*results.shape[:along], 1, *results.shape[along + 1 :])
    return concat([empty(shape, results.dtype), results], along)


def _running(op: Op, a: DuckArray, axis: SupportsIndex | None, dtype: Any) -> DuckArray:
    x = tensor_like(op.name, a, "a")
    if dtype is not None:
        x = astype(x, dtype, copy=False)
    if x.ndim == 0 or (axis is None and x.ndim > 1):
        x = reshape(x, (x.size,))
    out = apply(op, (x,), {"axis": one_axis(op.name, 0 if axis is None else axis, x.ndim)})
    return out if dtype is None else astype(out, dtype, copy=False)


# Spreads


@implements(np.var)
def var(
    a: Kind | ArrayLike,
    axis: Axes = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    dtype: npt.DTypeLike | None = None,
    where: Operand | None = None,
    mean: Kind | ArrayLike | None = None,
    correction: float | None = None,
) -> Kind:
    """Variance, as `numpy.var`; its derivative is ``2 (a - mean(a)) / (n - ddof)``.

    >>> tg.var([1.0, 2.0, 3.0], ddof=1).item()
    1.0
    """
    return _variance("var", a, axis, ddof, correction, keepdims, dtype, where, mean)


@implements(np.std)
def std(
    a: Kind | ArrayLike,
    axis: Axes = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    dtype: npt.DTypeLike | None = None,
    where: Operand | None = None,
    mean: Kind | ArrayLike | None = None,
    correction: float | None = None,
) -> Kind:
    """Root of the variance, as `numpy.std`; the derivative is 0 or NaN where the result is.

    >>> tg.std([1.0, 2.0, 3.0], ddof=1).item()
    1.0
    """
    return _root(_variance("std", a, axis, ddof, correction, keepdims, dtype, where, mean))


def _variance(
    name: str,
    a: DuckArray,
    axis: object,
    ddof: float,
    correction: float | None,
    keepdims: bool,
    dtype: Any,
    where: DuckArray,
    middle: DuckArray,
) -> DuckArray:
    if correction is None:
        lost = float(ddof) if type(ddof) is int else as_float(ddof, name, "ddof")
    elif ddof != 0:
        received = f"ddof={ddof} and correction={correction}"
        raise ValueError(message(name, received, "one of them, which mean the same"))
    else:
        lost = as_float(correction, name, "correction")
    x = a if type(a) is nodes.tensor_class else tensor_like(name, a, "a")
    shape = x.shape
    axes = some_axes(name, axis, len(shape))
    if middle is not None:
        middle = tensor_like(name, middle, "mean")
        check_spreads(name, "mean", middle.shape, shape)
    elif dtype is None and where is None:
        middle = apply(MEAN, (x,), {"axis": axes, "keepdims": True})
    else:
        middle = mean(x, axes, keepdims=True, dtype=dtype, where=where)
    squares = squared(sub(x, middle))
    if where is None:
        count: DuckArray = _count(shape, axes)
        if dtype is not None:
            squares = astype(squares, dtype, copy=False)
        total = apply(SUM, (squares,), {"axis": axes, "keepdims": bool(keepdims)})
        variance = div(total, count - lost if count > lost else 0.0)
        if count == 1 and lost >= 1:  # 0 / 0, whose derivative is NaN though the 0 does not move
            return add(variance, mul(real(sum(x, axes, keepdims)), math.nan))
        return variance
    total = sum(squares, axes, keepdims, dtype=dtype, where=where)
    count = _how_many(name, x, where, axes, keepdims)
    return div(total, np.maximum(count - lost, 0).astype(total.dtype))


def squared(x: DuckArray) -> DuckArray:
    if x.dtype.kind != "c":
        return mul(x, x)
    a, b = real(x), imag(x)
    return add(mul(a, a), mul(b, b))


def _root(variance: DuckArray) -> DuckArray:
    """Return the square root; its slope at 0, which is infinite, is taken as 0."""
    if type(variance) is nodes.tensor_class and not recorder().capture and variance._array.all():
        return sqrt(variance)
    return sqrt(choose_by(numbers(variance) == 0, 0.0, variance))


# Passing over NaN


@implements(np.nansum)
def nansum(a: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """Sum of the elements that are not NaN, as `numpy.nansum`; no gradient flows to NaNs.

    >>> tg.nansum([1.0, float("nan"), 3.0]).item()
    4.0
    """
    return _present("nansum", a, axis, keepdims)[0]


@implements(np.nanmean)
def nanmean(a: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """Mean of the elements that are not NaN, as `numpy.nanmean`; no gradient flows to NaNs.

    >>> tg.nanmean([1.0, float("nan"), 3.0]).item()
    2.0
    """
    total, count, _ = _present("nanmean", a, axis, keepdims)
    return div(total, count)


@implements(np.nanvar)
def nanvar(a: Kind | ArrayLike, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Kind:
    """`var` of the elements that are not NaN, as `numpy.nanvar`; no gradient flows to NaNs.

    >>> tg.nanvar([1.0, float("nan"), 3.0]).item()
    1.0
    """
    return _present_variance("nanvar", a, axis, ddof, keepdims)


@implements(np.nanstd)
def nanstd(a: Kind | ArrayLike, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Kind:
    """`std` of the elements that are not NaN, as `numpy.nanstd`; no gradient flows to NaNs.

    >>> tg.nanstd([1.0, float("nan"), 3.0]).item()
    1.0
    """
    return _root(_present_variance("nanstd", a, axis, ddof, keepdims))


def _present(
    name: str, a: DuckArray, axis: object, keepdims: bool
) -> tuple[DuckArray, DuckArray, DuckArray]:
    """Return the sum and count of elements that are not NaN, and where NaN is."""
    x, axes = _operand(name, a, axis)
    missing = np.isnan(numbers(x))
    total = sum(choose_by(missing, 0, x), axes, keepdims)
    count = np.sum(~missing, axis=axes, keepdims=keepdims)
    kind = real_dtype(total.dtype) if total.dtype.kind in "fc" else np.float64
    return total, count.astype(kind), missing


def _present_variance(
    name: str, a: DuckArray, axis: object, ddof: object, keepdims: bool
) -> DuckArray:
    x, axes = _operand(name, a, axis)
    total, count, missing = _present(name, x, axes, keepdims=True)
    deviation = choose_by(missing, 0.0, sub(x, div(total, np.maximum(count, 1))))
    square = real(mul(deviation, conj(deviation)))  # so does NumPy here, unlike in var
    squares = sum(square, axes, keepdims)
    freedom = count.reshape(squares.shape) - as_float(ddof, name, "ddof")
    enough = freedom > 0
    known = np.where(enough, 0.0, math.nan).astype(count.dtype)
    variance = div(squares, freedom.astype(count.dtype) + known)
    # NaN has the derivative NaN, though the squares of one element do not move.
    moved = mul(real(reshape(total, squares.shape)), known)
    return choose_by(enough, variance, add(variance, moved))


# Means


@overload
def average(
    a: Kind | ArrayLike,
    axis: Axes = None,
    weights: Kind | ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: bool = False,
) -> Kind: ...
@overload
def average(
    a: Kind | ArrayLike,
    axis: Axes = None,
    weights: Kind | ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: bool = False,
) -> tuple[Kind, Kind]: ...
@implements(np.average)
def average(
    a: Kind | ArrayLike,
    axis: Axes = None,
    weights: Kind | ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Kind | tuple[Kind, Kind]:
    """Weighted mean, as `numpy.average`; gradients flow to the weights too.

    >>> tg.average([1.0, 2.0], weights=[3.0, 1.0]).item()
    1.25
    """
    x, axes = _operand("average", a, axis)
    if weights is None:
        middle = mean(x, axes, keepdims)
        scale = tensor_like("average", np.asarray(_count(x.shape, axes), middle.dtype))
    else:
        w = _aligned(tensor_like("average", weights, "weights"), x.shape, axis)
        floats = () if x.dtype.kind in "fc" else (np.float64,)
        w = astype(w, np.result_type(x.dtype, w.dtype, *floats), copy=False)
        scale = sum(w, axes, keepdims)
        if not peek(scale).all():
            received = "weights that add up to zero"
            raise ZeroDivisionError(message("average", received, "a sum other than zero"))
        middle = div(sum(mul(x, w), axes, keepdims), scale)
    return (middle, mul(scale, np.ones(middle.shape, scale.dtype))) if returned else middle


def _aligned(w: DuckArray, shape: tuple[int, ...], axis: object) -> DuckArray:
    """Give weights the axes of the array that they weigh."""
    if w.shape == shape:
        return w
    received = f"weights of shape {w.shape} for shape {shape}"
    if axis is None:
        fix = "Name the weighted axes by axis=."
        raise TypeError(message("average", received, "equal shapes without axis=", fix))
    axes = ordered_axes("average", "axis", axis, len(shape))
    lengths = tuple(shape[a] for a in axes)
    if w.shape != lengths:
        raise ValueError(message("average", received, f"{shape}, or {lengths} along the axes"))
    w = permuted(w, tuple(sorted(range(len(axes)), key=axes.__getitem__)))
    return reshape(w, tuple(n if a in axes else 1 for a, n in enumerate(shape)))


def logsumexp(
    a: Kind | ArrayLike,
    axis: Axes = None,
    b: Kind | ArrayLike | None = None,
    keepdims: bool = False,
) -> Kind:
    """``log(sum(b * exp(a)))`` without overflow, as `scipy.special.logsumexp`.

    >>> tg.logsumexp([1000.0, 0.0]).item()
    1000.0
    """
    x, axes = _operand("logsumexp", a, axis)
    factors = None if b is None else tensor_like("logsumexp", b, "b")
    if factors is not None:
        check_spreads("logsumexp", "b", factors.shape, x.shape)
    shift = shift_along(x, axes)
    with np.errstate(divide="ignore"):  # nothing to sum is -inf
        powers = exp(sub(x, shift))
        if factors is not None:
            powers = mul(powers, factors)
        total = log(sum(powers, axes, keepdims))
    return add(total, shift.reshape(total.shape))


def shift_along(x: DuckArray, axes: tuple[int, ...]) -> DuckArray:
    """Return the maximum along axes, kept, or 0 where it is not finite, as a constant in floats."""
    data = numbers(x) if x.dtype.kind in "fc" else numbers(x).astype(np.float64)
    if not _count(x.shape, axes):
        return np.zeros(kept_shape(x.shape, axes), data.dtype)
    top = np.max(data, axis=axes, keepdims=True)
    return np.where(np.isfinite(top), top, np.zeros((), top.dtype))


# Order statistics


@implements(np.median)
def median(a: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """Middle element, or mean of two, as `numpy.median`; the first of equal ones has the gradient.

    >>> tg.median([5.0, 1.0, 2.0, 4.0]).item()
    3.0
    """
    x, axes = _operand("median", a, axis)
    n = _count(x.shape, axes)
    if n == 0:
        return mean(x, axes, keepdims)
    picked = _ranked(x, axes, np.arange((n - 1) // 2, n // 2 + 1))
    middle = mean(picked, axis=-1)
    if is_complex(picked):  # a division would mix the parts of a NaN
        first = picked[..., 0]
        middle = choose_by(np.isnan(numbers(first)), first, middle)
    return reshape(middle, kept_shape(x.shape, axes)) if keepdims else middle


@implements(np.quantile)
def quantile(a: Kind | ArrayLike, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Kind:
    """Quantiles by linear interpolation, as `numpy.quantile`, of a ``q`` without a gradient.

    The gradient goes to the two elements around a quantile, of equal ones to the first.

    >>> tg.quantile([1.0, 2.0, 5.0], [0.5, 0.75]).data
    array([2. , 3.5])
    """
    return _quantile("quantile", a, q, 1, axis, keepdims)


@implements(np.percentile)
def percentile(
    a: Kind | ArrayLike, q: ArrayLike, axis: Axes = None, keepdims: bool = False
) -> Kind:
    """Percentiles, as `numpy.percentile`: `quantile` with ``q`` from 0 to 100.

    >>> tg.percentile([1.0, 2.0, 5.0], 75).item()
    3.5
    """
    return _quantile("percentile", a, q, 100, axis, keepdims)


def _quantile(
    name: str, a: DuckArray, q: DuckArray, whole: int, axis: object, keepdims: bool
) -> DuckArray:
    x, axes = _operand(name, a, axis)
    if is_complex(x, q):
        raise real_only(name)
    if getattr(q, "requires_grad", False):
        fix = "Write q.detach()."
        raise TypeError(message(name, "a 'q' that needs a gradient", "a constant", fix))
    levels = numeric(q, name, "q")
    if not ((levels >= 0) & (levels <= whole)).all():
        raise ValueError(message(name, f"{kind_of(q)} for 'q'", f"numbers from 0 to {whole}"))
    n = _count(x.shape, axes)
    if n == 0:
        raise ValueError(message(name, f"shape {x.shape} with axis {axis}", "some elements"))
    if whole != 1:
        levels = np.true_divide(levels, whole)
    place = (n - 1) * levels.ravel()
    below = np.floor(place).astype(np.int64)
    picked = _ranked(x, axes, np.concatenate([below, np.ceil(place).astype(np.int64)]))
    low, high = (getitem(picked, (..., part)) for part in np.s_[: place.size, place.size :])
    if levels.dtype.kind != "f":  # of 0 and 1 alone
        found = low
    else:
        share = np.asarray(place - below, levels.dtype)
        weak = type(q) in (int, float) and x.dtype.kind == "f"
        found = _between(low, high, share, x.dtype if weak else levels.dtype)
    if found.ndim > 1 and levels.ndim:
        found = moveaxis(found, -1, 0)
    shape = kept_shape(x.shape, axes) if keepdims else picked.shape[:-1]
    return reshape(found, (*levels.shape, *shape))


@np.errstate(invalid="ignore")
def _between(low: DuckArray, high: DuckArray, share: Array, dtype: DType) -> DuckArray:
    """Interpolate from the nearer number, as NumPy does; equal infinities stay as they are."""
    rise = sub(high, low)
    up = add(low, mul(rise, share.astype(dtype)))
    down = sub(high, mul(rise, (1.0 - share).astype(dtype)))
    equal = np.logical_and(np.isnan(numbers(rise)), numbers(low) == numbers(high))
    return choose_by(equal, low, choose_by(share < 0.5, up, down))


def _ranked(x: DuckArray, axes: tuple[int, ...], ranks: Array) -> DuckArray:
    """Return the elements of some ranks along some axes, on a new last axis; NaN where one is."""
    x = permuted(x, last_order(x.ndim, axes))
    rest = x.shape[: x.ndim - len(axes)]
    table = reshape(x, (math.prod(rest), math.prod(x.shape[len(rest) :])))
    values = numbers(table)
    order = np.argsort(values, axis=-1, kind="stable")
    chosen = order[:, ranks]
    last = order[:, -1:]  # NaN where there is one
    if values.dtype.kind in "fc":
        chosen = np.where(np.isnan(np.take_along_axis(values, last, axis=-1)), last, chosen)
    picked = getitem(table, (np.arange(order.shape[0])[:, None], chosen))
    return reshape(picked, (*rest, ranks.size))


# Differences and integrals


@implements(np.diff)
def diff(
    a: Kind | ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: Kind | ArrayLike | None = None,
    append: Kind | ArrayLike | None = None,
) -> Kind:
    """Differences of neighbours, as `numpy.diff`; gradients flow to ``prepend`` and ``append`` too.

    >>> tg.diff([1.0, 4.0, 9.0]).data
    array([3., 5.])
    """
    x = tensor_like("diff", a, "a")
    if x.ndim == 0:
        raise ValueError(message("diff", "a 0-d array", "at least one axis"))
    along = one_axis("diff", axis, x.ndim)
    times = one_integer("diff", "n", n)
    if times < 0:
        raise ValueError(message("diff", f"n={times}", "a number that is not negative"))
    parts = [_edge(prepend, "prepend", x, along), x, _edge(append, "append", x, along)]
    parts = [part for part in parts if part is not None]
    if times and len(parts) > 1:
        x = concat(parts, along)
    for _ in range(times):
        after, before = _neighbours(x, along)
        x = sub(after, before)
    return x


def _neighbours(x: DuckArray, axis: int) -> tuple[DuckArray, DuckArray]:
    whole = (slice(None),) * axis
    return getitem(x, (*whole, slice(1, None))), getitem(x, (*whole, slice(None, -1)))


def _edge(value: DuckArray, argument: str, x: DuckArray, axis: int) -> DuckArray:
    """Return the elements before or after an array along an axis; a number is broadcast."""
    if value is None:
        return None
    edge = tensor_like("diff", value, argument)
    slab = kept_shape(x.shape, (axis,))
    if edge.ndim == 0:
        return mul(edge, np.ones(slab, edge.dtype))
    if edge.ndim != x.ndim or kept_shape(edge.shape, (axis,)) != slab:
        expected = f"a number, or the shape {x.shape} except along axis {axis}"
        raise ValueError(message("diff", f"{argument!r} of shape {edge.shape}", expected))
    return edge


# NumPy 2 renamed trapz.
@implements(*(getattr(np, name) for name in ("trapezoid", "trapz") if hasattr(np, name)))
def trapezoid(
    y: Kind | ArrayLike,
    x: Kind | ArrayLike | None = None,
    dx: Kind | ArrayLike = 1.0,
    axis: int = -1,
) -> Kind:
    """Integral along an axis, as `numpy.trapezoid`; gradients flow to ``x`` and ``dx`` too.

    >>> tg.trapezoid([1.0, 2.0, 3.0], x=[4.0, 6.0, 8.0]).item()
    8.0
    """
    heights = tensor_like("trapezoid", y, "y")
    along = one_axis("trapezoid", axis, heights.ndim)
    width = dx
    if x is not None:
        places = tensor_like("trapezoid", x)
        width = diff(places, axis=axis if places.ndim > 1 else -1)
        if places.ndim == 1:
            width = reshape(width, (width.size, *(1,) * (heights.ndim - along - 1)))
    after, before = _neighbours(heights, along)
    return sum(div(mul(width, add(after, before)), 2.0), axis=along)


# Without a gradient: plain arrays, and operations in a captured step


def _record_without_gradient(function: Fun, axes_of: Callable[[str, Any, int], Any]) -> None:
    name = function.__name__

    op = Op(name, function, kind=OpKind.REDUCTION, differentiable=())

    def record(a: DuckArray, axis: object = None, keepdims: bool = False) -> DuckArray:
        attrs = {"axis": axes_of(name, axis, a.ndim), "keepdims": bool(keepdims)}
        return apply(op, (a,), attrs)

    without_gradient(function)(record)


def _at_most_one(op: str, axis: SupportsIndex | None, ndim: int) -> int | None:
    return None if axis is None else one_axis(op, axis, ndim)


_record_without_gradient(np.argmax, _at_most_one)
_record_without_gradient(np.argmin, _at_most_one)
_record_without_gradient(np.all, some_axes)
_record_without_gradient(np.any, some_axes)


@without_gradient(np.count_nonzero)
def _count_nonzero(a: DuckArray, axis: Axes = None, *, keepdims: bool = False) -> DuckArray:
    return np.sum((a != 0).astype(np.int64), axis=axis, keepdims=keepdims)


@without_gradient(np.allclose)
def _all_close(
    a: DuckArray, b: DuckArray, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> DuckArray:
    return np.all(np.isclose(a, b, rtol, atol, equal_nan))


@without_gradient(np.array_equal)
def _array_equal(a1: DuckArray, a2: DuckArray) -> DuckArray:
    return np.all(a1 == a2) if np.shape(a1) == np.shape(a2) else False

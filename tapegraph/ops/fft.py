"""``tg.fft``: discrete Fourier transforms, as `numpy.fft` names them; all are linear."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np

from tapegraph.arrays import check_one_of, int_tuple, one_axis, ordered_axes
from tapegraph.errors import kind_of, message
from tapegraph.kinds import Kind
from tapegraph.ops import elementwise, index
from tapegraph.recording.node import Node
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import apply, is_complex, real_only, tensor_like
from tapegraph.typed import ArrayLike, Axes, DuckArray

__all__ = [
    "fft", "fft2", "fftconvolve", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn",
    "ifftshift", "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Norm: TypeAlias = Literal["backward", "ortho", "forward"] | None
Lengths: TypeAlias = Sequence[int] | None
AxisList: TypeAlias = Sequence[SupportsIndex] | None
ConvolveMode: TypeAlias = Literal["full", "same", "valid"]
# The norm that a transform's inverse has, taken without changing direction.
SWAPPED: dict[str, Norm] = {"backward": "forward", "ortho": "ortho", "forward": "backward"}

# The protocol of `scipy.fft.set_backend`.
__ua_domain__ = "numpy.scipy.fft"

fftfreq, rfftfreq = np.fft.fftfreq, np.fft.rfftfreq  # plain numbers


FFT = Op("fft", np.fft.fftn, kind=OpKind.ALONG, takes_complex=True)
IFFT = Op("ifft", np.fft.ifftn, kind=OpKind.ALONG, takes_complex=True)
RFFT = Op("rfft", np.fft.rfft, kind=OpKind.ALONG, promotes=False)
IRFFT = Op("irfft", np.fft.irfft, kind=OpKind.ALONG, takes_complex=True)


@implements(np.fft.fft)
def fft(
    a: Kind | ArrayLike, n: int | None = None, axis: SupportsIndex = -1, norm: Norm = None
) -> Kind:
    """Transform along one axis, as `numpy.fft.fft`.

    >>> tg.fft.fft([1.0, 2.0]).data
    array([ 3.+0.j, -1.+0.j])
    """
    return _several("fft", FFT, a, None if n is None else (n,), (axis,), norm)


@implements(np.fft.ifft)
def ifft(
    a: Kind | ArrayLike, n: int | None = None, axis: SupportsIndex = -1, norm: Norm = None
) -> Kind:
    """Transform back along one axis, as `numpy.fft.ifft`.

    >>> tg.fft.ifft([3.0, -1.0]).data
    array([1.+0.j, 2.+0.j])
    """
    return _several("ifft", IFFT, a, None if n is None else (n,), (axis,), norm)


@implements(np.fft.fft2)
def fft2(
    a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = (-2, -1), norm: Norm = None
) -> Kind:
    """Transform along two axes, as `numpy.fft.fft2`.

    >>> tg.fft.fft2([[1.0, 2.0]]).data
    array([[ 3.+0.j, -1.+0.j]])
    """
    return _several("fft2", FFT, a, s, axes, norm)


@implements(np.fft.ifft2)
def ifft2(
    a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = (-2, -1), norm: Norm = None
) -> Kind:
    """Transform back along two axes, as `numpy.fft.ifft2`.

    >>> tg.fft.ifft2([[3.0, -1.0]]).data
    array([[1.+0.j, 2.+0.j]])
    """
    return _several("ifft2", IFFT, a, s, axes, norm)


@implements(np.fft.fftn)
def fftn(a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = None, norm: Norm = None) -> Kind:
    """Transform along some axes, or all, as `numpy.fft.fftn`.

    >>> tg.fft.fftn([[1.0, 2.0]]).data
    array([[ 3.+0.j, -1.+0.j]])
    """
    return _several("fftn", FFT, a, s, axes, norm)


@implements(np.fft.ifftn)
def ifftn(a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = None, norm: Norm = None) -> Kind:
    """Transform back along some axes, or all, as `numpy.fft.ifftn`.

    >>> tg.fft.ifftn([[3.0, -1.0]]).data
    array([[1.+0.j, 2.+0.j]])
    """
    return _several("ifftn", IFFT, a, s, axes, norm)


@implements(np.fft.rfft)
def rfft(
    a: Kind | ArrayLike, n: int | None = None, axis: SupportsIndex = -1, norm: Norm = None
) -> Kind:
    """Transform real numbers along one axis, as `numpy.fft.rfft`.

    >>> tg.fft.rfft([1.0, 2.0, 3.0]).data.round(3)
    array([ 6. +0.j   , -1.5+0.866j])
    """
    return rfftn(a, None if n is None else (n,), (axis,), norm)


@implements(np.fft.irfft)
def irfft(
    a: Kind | ArrayLike, n: int | None = None, axis: SupportsIndex = -1, norm: Norm = None
) -> Kind:
    """Transform back to real numbers along one axis, as `numpy.fft.irfft`.

    >>> tg.fft.irfft(tg.fft.rfft([1.0, 2.0, 3.0]), 3).data.round(3)
    array([1., 2., 3.])
    """
    return irfftn(a, None if n is None else (n,), (axis,), norm)


@implements(np.fft.rfft2)
def rfft2(
    a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = (-2, -1), norm: Norm = None
) -> Kind:
    """Transform real numbers along two axes, as `numpy.fft.rfft2`.

    >>> tg.fft.rfft2([[1.0, 2.0]]).data
    array([[ 3.+0.j, -1.+0.j]])
    """
    return rfftn(a, s, axes, norm)


@implements(np.fft.irfft2)
def irfft2(
    a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = (-2, -1), norm: Norm = None
) -> Kind:
    """Transform back to real numbers along two axes, as `numpy.fft.irfft2`.

    >>> tg.fft.irfft2([[3.0, -1.0]]).data
    array([[1., 2.]])
    """
    return irfftn(a, s, axes, norm)


@implements(np.fft.rfftn)
def rfftn(a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = None, norm: Norm = None) -> Kind:
    """Transform real numbers along some axes, or all, as `numpy.fft.rfftn`.

    >>> tg.fft.rfftn([[1.0, 2.0]]).data
    array([[ 3.+0.j, -1.+0.j]])
    """
    x = tensor_like("rfftn", a, "a")
    if is_complex(x):
        raise real_only("rfftn")
    scaled, (*rest, last) = _norm("rfftn", norm), _some_axes("rfftn", x, s, axes)
    x = _fitted("rfftn", x, s, (*rest, last))
    out = apply(RFFT, (x,), {"axis": last, "norm": scaled})
    return apply(FFT, (out,), {"axes": tuple(rest), "norm": scaled}) if rest else out


@implements(np.fft.irfftn)
def irfftn(
    a: Kind | ArrayLike, s: Lengths = None, axes: AxisList = None, norm: Norm = None
) -> Kind:
    """Transform back to real numbers along some axes, or all, as `numpy.fft.irfftn`.

    >>> tg.fft.irfftn([[3.0, -1.0]]).data
    array([[1., 2.]])
    """
    x = tensor_like("irfftn", a, "a")
    scaled, (*rest, last) = _norm("irfftn", norm), _some_axes("irfftn", x, s, axes)
    *lengths, n = (2 * (x.shape[last] - 1),) if s is None else int_tuple("irfftn", "s", s)
    if n == -1:
        n = x.shape[last]
    if n < 1:
        raise ValueError(message("irfftn", f"n={n}", "1 or more"))
    along = (last,) if s is None else (*rest, last)
    x = _fitted("irfftn", x, (*lengths, n // 2 + 1), along)
    if rest:
        x = apply(IFFT, (x,), {"axes": tuple(rest), "norm": scaled})
    return apply(IRFFT, (x,), {"n": n, "axis": last, "norm": scaled})


@implements(np.fft.hfft)
def hfft(
    a: Kind | ArrayLike, n: int | None = None, axis: SupportsIndex = -1, norm: Norm = None
) -> Kind:
    """Transform a signal of Hermitian symmetry to real numbers, as `numpy.fft.hfft`.

    >>> tg.fft.hfft([1.0, 2.0]).data
    array([ 3., -1.])
    """
    return irfft(elementwise.conj(a), n, axis, SWAPPED[_norm("hfft", norm)])


@implements(np.fft.ihfft)
def ihfft(
    a: Kind | ArrayLike, n: int | None = None, axis: SupportsIndex = -1, norm: Norm = None
) -> Kind:
    """Transform real numbers back to a signal of Hermitian symmetry, as `numpy.fft.ihfft`.

    >>> tg.fft.ihfft([3.0, -1.0]).data
    array([1.-0.j, 2.-0.j])
    """
    return elementwise.conj(rfft(a, n, axis, SWAPPED[_norm("ihfft", norm)]))


@implements(np.fft.fftshift)
def fftshift(x: Kind | ArrayLike, axes: Axes = None) -> Kind:
    """Put the zero frequency in the middle, as `numpy.fft.fftshift`.

    >>> tg.fft.fftshift([0.0, 1.0, -1.0]).data
    array([-1.,  0.,  1.])
    """
    return _shifted("fftshift", x, axes, lambda n: n // 2)


@implements(np.fft.ifftshift)
def ifftshift(x: Kind | ArrayLike, axes: Axes = None) -> Kind:
    """Put the zero frequency first again, as `numpy.fft.ifftshift`.

    >>> tg.fft.ifftshift([-1.0, 0.0, 1.0]).data
    array([ 0.,  1., -1.])
    """
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))


def fftconvolve(
    in1: Kind | ArrayLike, in2: Kind | ArrayLike, mode: ConvolveMode = "full", axes: Axes = None
) -> Kind:
    """Convolve along axes by transforms, as `scipy.signal.fftconvolve`; empty arrays are refused.

    >>> tg.fft.fftconvolve([1.0, 2.0, 3.0], [1.0, 1.0]).data.round(6)
    array([1., 3., 5., 3.])
    """
    op = "fftconvolve"
    a, b = tensor_like(op, in1, "in1"), tensor_like(op, in2, "in2")
    along = _convolved(op, a, b, axes)
    pairs = list(zip(a.shape, b.shape, strict=True))
    longer = [pairs[axis][0] - pairs[axis][1] for axis in along]
    check_one_of(op, "mode", mode, "full", "same", "valid")
    if mode == "valid" and min(longer, default=0) < 0 < max(longer, default=0):
        received = f"shapes {a.shape} and {b.shape}"
        raise ValueError(message(op, received, "one that fits into the other", 'Use mode="same".'))
    whole = [n + m - 1 if axis in along else max(n, m) for axis, (n, m) in enumerate(pairs)]
    there, back = (fftn, ifftn) if is_complex(a, b) else (rfftn, irfftn)
    if along:
        lengths = [_fast_length(whole[axis]) for axis in along]
        out = back(there(a, lengths, along) * there(b, lengths, along), lengths, along)
    else:
        out = a * b
    complete = list(whole)
    for axis, difference in zip(along, longer, strict=True):
        complete[axis] = abs(difference) + 1
    sizes = {"full": whole, "same": a.shape, "valid": complete}[mode]
    starts = [(n - size) // 2 for n, size in zip(whole, sizes, strict=True)]
    middle = (slice(start, start + n) for start, n in zip(starts, sizes, strict=True))
    return out[tuple(middle)]


def _convolved(op: str, a: DuckArray, b: DuckArray, axes: object) -> list[int]:
    """Return the axes along which neither array is a single element; others must broadcast."""
    received = f"shapes {a.shape} and {b.shape}"
    if a.ndim != b.ndim or not (a.size and b.size):
        raise ValueError(message(op, received, "the same number of axes, none of them empty"))
    named = set(ordered_axes(op, "axes", range(a.ndim) if axes is None else axes, a.ndim))
    pairs = list(zip(a.shape, b.shape, strict=True))
    for axis, (n, m) in enumerate(pairs):
        if axis not in named and n != m and 1 not in (n, m):
            raise ValueError(message(op, received, f"shapes that broadcast along axis {axis}"))
    return [axis for axis in sorted(named) if 1 not in pairs[axis]]


def _fast_length(n: int) -> int:
    """Return the least length from ``n`` on with no prime factors but 2, 3 and 5."""
    powers = (3**i * 5**j for i in range(n.bit_length()) for j in range(n.bit_length()))
    return min(odd << max(0, math.ceil(n / odd) - 1).bit_length() for odd in powers)


def __ua_function__(
    method: Any, args: tuple[DuckArray, ...], kwargs: dict[str, object]
) -> DuckArray:
    """Run a `scipy.fft` function on tensors in ``scipy.fft.set_backend(tg.fft)``, or leave it."""
    name = method.__name__
    given = inspect.signature(method).bind(*args, **kwargs).arguments
    x = given.pop("x", None)
    recorded = isinstance(x, Node) or hasattr(type(x), "__tapegraph_apply__")
    if not recorded or name not in __all__ or given.pop("plan", None) is not None:
        return NotImplemented
    hints = ("overwrite_x", "workers")  # of speed and memory
    options = {key: value for key, value in given.items() if key not in hints}
    for key in options.keys() & {"s", "axes"}:
        if isinstance(options[key], SupportsIndex):  # which SciPy takes too
            options[key] = (options[key],)
    return globals()[name](x, **options)


def _several(
    op: str, kind: Op, a: DuckArray, s: DuckArray, axes: object, norm: object
) -> DuckArray:
    x = tensor_like(op, a, "a")
    scaled, along = _norm(op, norm), _axes(op, x, s, axes)
    x = _fitted(op, x, s, along)
    if not along:  # NumPy gives complex numbers all the same
        return elementwise.mul(x, 1.0 + 0.0j)
    return apply(kind, (x,), {"axes": along, "norm": scaled})


def _norm(op: str, norm: object) -> str:
    if norm is None:
        return "backward"
    if norm not in SWAPPED:
        raise ValueError(message(op, f"norm={norm!r}", '"backward", "ortho" or "forward"'))
    return norm


def _axes(op: str, x: DuckArray, s: DuckArray, axes: object) -> tuple[int, ...]:
    if axes is None:
        count = x.ndim if s is None else len(int_tuple(op, "s", s))
        chosen: Any = range(-count, 0)
    elif isinstance(axes, (tuple, list)):
        chosen = axes
    else:
        raise TypeError(message(op, f"{kind_of(axes)} for 'axes'", "a sequence of axes"))
    return tuple(one_axis(op, axis, x.ndim) for axis in chosen)


def _some_axes(op: str, x: DuckArray, s: DuckArray, axes: object) -> tuple[int, ...]:
    along = _axes(op, x, s, axes)
    if not along or len(set(along)) != len(along):
        raise ValueError(message(op, f"axes {axes}", "at least one axis, each once"))
    return along


def _fitted(op: str, x: DuckArray, s: DuckArray, axes: tuple[int, ...]) -> DuckArray:
    """Cut an array, or pad it with zeros at its ends, to the lengths ``s`` along axes."""
    lengths = [x.shape[axis] for axis in axes] if s is None else int_tuple(op, "s", s)
    if len(lengths) != len(axes):
        received = f"{len(lengths)} lengths and {len(axes)} axes"
        raise ValueError(message(op, received, "a length per axis"))
    for length, axis in zip(lengths, axes, strict=True):
        have = x.shape[axis]
        want = have if length == -1 else length
        if want < 1:
            raise ValueError(message(op, f"{want} numbers to transform", "at least 1"))
        if want < have:
            x = x[(slice(None),) * axis + (slice(want),)]
        elif want > have:
            widths = [(0, want - have if i == axis else 0) for i in range(x.ndim)]
            x = index.pad(x, widths)
    return x


def _shifted(op: str, x: DuckArray, axes: object, distance: Any) -> DuckArray:
    array = tensor_like(op, x)
    along = ordered_axes(op, "axes", range(array.ndim) if axes is None else axes, array.ndim)
    if not along:
        return array
    return index.roll(array, tuple(distance(array.shape[axis]) for axis in along), along)


def __dir__() -> list[str]:
    return sorted(__all__)

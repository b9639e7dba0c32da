"""Random numbers: arrays, or leaves that every run of a program draws anew.

One NumPy ``Generator`` (PCG64) serves the process, seeded by the system until `seed` is called.
NumPy's lock makes each draw atomic, so threads share the stream; which thread gets which number is
the scheduler's choice. A forked child begins with its own stream, seeded by the system. A compiled
step whose numbers decide how much it draws, in a branch or a loop, moves the stream as it ends.

Initial weights have the shape (in, out) of a matrix for ``x @ w``, as in Keras, or that of a kernel
of `conv2d`, (out, in, *spatial), whose places count in its fans, as in PyTorch.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import int_tuple, one_integer
from tapegraph.draws import GENERATOR, drawn_from, packed, unpacked
from tapegraph.errors import kind_of, message
from tapegraph.interrupts import Lock
from tapegraph.other_names import missing_in, unexpected
from tapegraph.recording.node import get_default_dtype
from tapegraph.recording.scopes import Scope, Setting, recorder
from tapegraph.recording.values import Change, Undo
from tapegraph.typed import Array, DType, DuckArray, Shape

__all__ = [
    "dropout_mask", "generator", "get_state", "glorot_normal", "glorot_uniform", "he_normal",
    "he_uniform", "integers", "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform",
    "normal", "orthogonal", "permutation", "seed", "set_state", "truncated_normal", "uniform",
    "xavier_normal", "xavier_uniform",
]  # fmt: skip

_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}
_FLOAT64 = np.dtype(np.float64)

_lock = Lock()
# Made when it is first asked for: importing numpy.random takes longer than the rest of the import.
_generator: np.random.Generator | None = None
# Gives the position to go on from, where an engine that has run still holds it.
_left: Callable[[], Array] | None = None


def _shared() -> np.random.Generator:
    global _generator, _left
    given = GENERATOR.value()
    if given is not None:
        return given
    with _lock.held:
        if _generator is None:
            _generator = np.random.default_rng()
        if _left is not None:
            _generator.bit_generator.state = unpacked(_left())
            _left = None
        return _generator


def _forget() -> None:
    """Start anew in a forked child: another thread may have been drawing from its copy."""
    global _generator, _left
    _generator = _left = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# The stream


def generator() -> np.random.Generator:
    """Return NumPy's generator behind every draw, for other code to use.

    A direct draw from it is a plain array, which no program draws anew.

    :raises RuntimeError: Inside a captured program.

    >>> tg.random.generator()
    Generator(PCG64) at 0x...
    """
    recorder().outside(
        "random.generator", "Draw with tg.random.normal, uniform, integers or permutation."
    )
    return _shared()


def seed(n: SupportsIndex) -> None:
    """Start the stream of a seed: the numbers of ``np.random.default_rng(n)``.

    :param n: Not negative, of any size.
    :raises TypeError: It is not an integer.
    :raises ValueError: It is negative.
    :raises RuntimeError: Inside a captured program.

    >>> tg.random.seed(7)
    >>> np.array_equal(tg.random.normal(size=3), np.random.default_rng(7).normal(size=3))
    True
    """
    name = "random.seed"
    recorder().outside(name, "Its runs go on with the stream: seed it before the first.")
    number = one_integer(name, "n", n)
    if number < 0:
        raise ValueError(message(name, f"n={number}", "a seed that is not negative"))
    _move_to(np.random.PCG64(number).state)


def get_state() -> dict[str, Any]:
    """Return the position of the stream, as dicts of strings and Python ints, for JSON.

    The integers have up to 128 bits: Python's ``json`` keeps them all, other readers may not.

    :returns: The state of NumPy's ``PCG64``, for `set_state`.
    :raises RuntimeError: Inside a captured program.

    >>> saved, first = tg.random.get_state(), tg.random.uniform(size=3)
    >>> tg.random.set_state(saved)
    >>> bool((tg.random.uniform(size=3) == first).all())
    True
    """
    recorder().outside("random.get_state", "Read it before or after a run.")
    bits = _shared().bit_generator
    with bits.lock:
        state = {**bits.state}
    return state


def set_state(state: dict[str, Any]) -> None:
    """Continue the stream from a result of `get_state`.

    :param state: A result of `get_state`; neither changed nor kept.
    :raises TypeError: It is no dict.
    :raises ValueError: It is not a state of NumPy's ``PCG64``. The stream is unchanged.
    :raises RuntimeError: Inside a captured program.

    >>> tg.random.set_state(np.random.default_rng(7).bit_generator.state)
    >>> tg.random.integers(10, size=5)
    array([9, 6, 6, 8, 5])
    """
    name = "random.set_state"
    recorder().outside(name, "Its runs go on with the stream: set it before the first.")
    if not isinstance(state, dict):
        raise TypeError(message(name, f"{kind_of(state)} for 'state'", "a dict"))
    taken: Any = np.random.PCG64(0)
    try:
        taken.state = state
        understood = taken.state == state  # NumPy ignores unknown entries
    except (KeyError, OverflowError, TypeError, ValueError):
        understood = False
    if not understood:
        expected = "a result of tg.random.get_state(), a state of NumPy's PCG64"
        raise ValueError(message(name, f"{kind_of(state)} for 'state'", expected))
    _move_to(taken.state)


def _move_to(state: Any) -> None:
    bits = _shared().bit_generator
    with bits.lock:
        bits.state = state


def come_back(undo: Undo) -> None:
    """Log the stream's position, to which undoing a failed call returns."""
    if _generator is not None:
        undo.extendleft(reversed(_changed_to(get_state())))


def moved_to(position: Any) -> list[Change]:
    """Return the changes that move the stream to a position, or to a function's later result."""
    if callable(position):
        return [partial(setattr, sys.modules[__name__], "_left", position)]
    return _changed_to(unpacked(position))


def settle() -> None:
    """Let the stream be where the last run has left it, for who holds its generator."""
    _shared()


def _changed_to(state: dict[str, Any]) -> list[Change]:
    bits: Any = _shared().bit_generator
    change = partial(type(bits).state.__set__, bits, state)
    return [bits.lock.acquire, change, bits.lock.release]


class Repeated:
    """Repeat the draws of a first run, which moves the stream, in later runs of a function."""

    def __init__(self) -> None:
        self._drawn: list[DuckArray] = []
        self._next = 0

    @contextmanager
    def run(self) -> Iterator[None]:
        self._next = 0
        with Scope(_REPEATED, (*_REPEATED.value(), self)):
            yield

    def numbers(self, draw: Callable[[], DuckArray]) -> DuckArray:
        if self._next == len(self._drawn):
            self._drawn.append(draw())
        found = self._drawn[self._next]
        self._next += 1
        # The function may write into an array.
        return found.copy() if isinstance(found, np.ndarray) else found


# The blocks of runs that draw alike, the innermost last.
_REPEATED: Setting[tuple[Repeated, ...]] = Setting("tapegraph_repeated_draws", default=())


def unrepeated() -> Scope[tuple[Repeated, ...]]:
    """Let draws inside belong to no block of runs that draw alike."""
    return Scope(_REPEATED, ())


def peeked(draw: Callable[[], Any]) -> Any:
    """Return the result of a draw; the stream stays where it is."""
    return drawn_from(_shared().bit_generator.state, draw)[0]


class Stretch:
    """A part of the stream, its positions as tensors; a program's numbers decide its length."""

    def __init__(self, start: object) -> None:
        self.start = self.end = start


@contextmanager
def stretch() -> Iterator[Stretch]:
    """Take a stretch of the stream: other threads wait, and later draws begin at its end."""
    bits = _shared().bit_generator
    first = False

    def take() -> Any:
        nonlocal first
        first = True
        return recorder().position(lambda: packed(bits.state))

    with bits.lock:
        for block in _REPEATED.value():
            take = partial(block.numbers, take)
        found = Stretch(take())
        yield found
        if first:
            recorder().move_to(found.end, lambda position: _move_to(unpacked(position)))


# Draws


def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    size: Shape | None = None,
    dtype: npt.DTypeLike | None = None,
    **others: NoReturn,
) -> Array:
    """Draw from a normal distribution, as `numpy.random.Generator.normal`.

    In float32, which NumPy's lacks, ``loc + scale * Generator.standard_normal(size, dtype)``.
    ``loc`` and ``scale`` are finite numbers: for arrays and tensors write ``loc + scale *
    tg.random.normal(size=...)``, which has a gradient too.

    >>> tg.random.seed(0)
    >>> tg.random.normal(5.0, 0.1, size=3)
    array([5.01257302, 4.98678951, 5.06404227])
    """
    name = "random.normal"
    if others:
        raise unexpected(name, others)
    kind, shape = _floating(name, dtype), _shape(name, "size", size)
    fix = "For arrays and tensors write loc + scale * tg.random.normal(size=...)."
    mean, deviation = _place_and_width(name, loc, scale, kind, fix)

    def draw() -> DuckArray:
        if kind == _FLOAT64:
            return _shared().normal(mean, deviation, shape)
        return _stretched(_shared().standard_normal(shape, np.float32), mean, deviation)

    return drawn(name, draw, kind, loc=mean, scale=deviation)


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    size: Shape | None = None,
    dtype: npt.DTypeLike | None = None,
    **others: NoReturn,
) -> Array:
    """Draw evenly from ``[low, high)``, as `numpy.random.Generator.uniform`.

    In float32, which NumPy's lacks, it is ``low + (high - low) * Generator.random(size, dtype)``.
    The bounds are finite numbers, ``low <= high``: for arrays and tensors write ``low + (high -
    low) * tg.random.uniform(size=...)``, which has a gradient too.

    >>> tg.random.seed(0)
    >>> tg.random.uniform(-1.0, 1.0, size=3)
    array([ 0.27392337, -0.46042657, -0.91805295])
    """
    name = "random.uniform"
    if others:
        raise unexpected(name, others)
    kind, shape = _floating(name, dtype), _shape(name, "size", size)
    fix = "For arrays and tensors write low + (high - low) * tg.random.uniform(size=...)."
    least, most = _number(name, "low", low, kind, fix), _number(name, "high", high, kind, fix)
    if least > most:
        raise ValueError(message(name, f"low={least} and high={most}", "low <= high"))
    width = _number(name, "high - low", most - least, kind)

    def draw() -> DuckArray:
        if kind == _FLOAT64:
            return _shared().uniform(least, most, shape)
        return _stretched(_shared().random(shape, np.float32), least, width)

    return drawn(name, draw, kind, low=least, high=most)


def integers(
    low: SupportsIndex,
    high: SupportsIndex | None = None,
    size: Shape | None = None,
    **others: NoReturn,
) -> Array:
    """Draw integers evenly from ``[low, high)``, as `numpy.random.Generator.integers`.

    The bounds are integers, not arrays, and the numbers int64.

    >>> tg.random.seed(7)
    >>> tg.random.integers(10, size=5)
    array([9, 6, 6, 8, 5])
    """
    name = "random.integers"
    if others:
        raise unexpected(name, others)
    shape = _shape(name, "size", size)
    first, end = (0, low) if high is None else (low, high)
    least, most = one_integer(name, "low", first), one_integer(name, "high", end)
    if not -(2**63) <= least < most <= 2**63:
        received = f"low={least} and high={most}"
        raise ValueError(message(name, received, "low < high, within 64 bits"))
    return drawn(
        name, lambda: _shared().integers(least, most, shape), np.int64, low=least, high=most
    )


def permutation(x: SupportsIndex) -> Array:
    """Draw an order of ``range(x)``, as `numpy.random.Generator.permutation` of a number.

    For an array write ``array[tg.random.permutation(len(array))]``.

    >>> tg.random.seed(0)
    >>> tg.random.permutation(5)
    array([2, 4, 3, 0, 1])
    """
    name = "random.permutation"
    fix = "To shuffle an array write x[tg.random.permutation(len(x))]."
    (count,) = _shape(name, "x", one_integer(name, "x", x, fix))
    return drawn(name, lambda: _shared().permutation(count), np.int64)


def dropout_mask(shape: Shape, p: float, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw the factors of `tapegraph.dropout`: ``1 / (1 - p)`` for kept elements, 0 for others.

    An element is kept where NumPy's ``Generator.random(shape) >= p``, in either dtype.

    :param p: The share to drop, in [0, 1].
    :param dtype: Float32 or float64.
    :raises TypeError, ValueError: The dtype is another, ``p`` not in [0, 1], or ``shape`` no shape.

    >>> tg.random.seed(0)
    >>> tg.random.dropout_mask(6, 0.5)
    array([2., 0., 0., 0., 2., 2.])
    """
    name = "random.dropout_mask"
    kind, lengths, rate = _floating(name, dtype), _shape(name, "shape", shape), share(name, p)
    scale = kind.type(keep_scale(rate))
    return drawn(name, lambda: scale * (_shared().random(lengths) >= rate), kind, p=rate)


# Initial weights

# The standard deviation of a standard normal number, once it lies within two of its own.
_TRUNCATED = 0.87962566103423978


def truncated_normal(
    loc: float = 0.0,
    scale: float = 1.0,
    size: Shape | None = None,
    dtype: npt.DTypeLike | None = None,
    **others: NoReturn,
) -> Array:
    """Draw from a normal distribution, again where it is over two ``scale`` from ``loc``.

    Keras's ``TruncatedNormal``, and PyTorch's ``trunc_normal_`` with bounds of ``loc - 2 * scale``
    and ``loc + 2 * scale``. The standard deviation of the numbers is ``0.8796 * scale``.

    >>> tg.random.seed(0)
    >>> bool(abs(tg.random.truncated_normal(5.0, 0.1, size=1000) - 5.0).max() <= 0.2)
    True
    """
    name = "random.truncated_normal"
    if others:
        raise unexpected(name, others)
    kind, shape = _floating(name, dtype), _shape(name, "size", size)
    mean, deviation = _place_and_width(name, loc, scale, kind)

    def draw() -> DuckArray:
        z: DuckArray = np.asarray(_shared().standard_normal(shape, kind))
        while (far := np.abs(z) > 2.0).any():
            z[far] = _shared().standard_normal(np.count_nonzero(far), kind)
        return _stretched(z, mean, deviation)

    return drawn(name, draw, kind, loc=mean, scale=deviation)


def xavier_uniform(shape: Shape, gain: float = 1.0, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw evenly within ``gain * sqrt(6 / (fan_in + fan_out))`` of 0: PyTorch's of this name.

    >>> bool(abs(tg.random.xavier_uniform((2, 4))).max() <= 1.0)
    True
    """
    name = "random.xavier_uniform"
    return _evenly(_gain(name, gain) * _root(6.0, name, "fan_sum", shape, dtype), shape, dtype)


def xavier_normal(shape: Shape, gain: float = 1.0, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw with standard deviation ``gain * sqrt(2 / (fan_in + fan_out))``: PyTorch's of this name.

    >>> tg.random.xavier_normal((2, 4)).shape
    (2, 4)
    """
    name = "random.xavier_normal"
    return normal(0.0, _gain(name, gain) * _root(2.0, name, "fan_sum", shape, dtype), shape, dtype)


def kaiming_uniform(
    shape: Shape, a: float = 0.0, mode: str = "fan_in", dtype: npt.DTypeLike | None = None
) -> Array:
    """Draw evenly within ``sqrt(6 / ((1 + a**2) * fan))`` of 0: PyTorch's of this name.

    ``a`` is the slope of a leaky ReLU below 0; ``mode`` is ``"fan_in"`` or ``"fan_out"``.

    >>> bool(abs(tg.random.kaiming_uniform((6, 4))).max() <= 1.0)
    True
    """
    deviation = _kaiming("random.kaiming_uniform", shape, a, mode, dtype)
    return _evenly(math.sqrt(3.0) * deviation, shape, dtype)


def kaiming_normal(
    shape: Shape, a: float = 0.0, mode: str = "fan_in", dtype: npt.DTypeLike | None = None
) -> Array:
    """Draw with standard deviation ``sqrt(2 / ((1 + a**2) * fan))``: PyTorch's of this name.

    ``a`` is the slope of a leaky ReLU below 0; ``mode`` is ``"fan_in"`` or ``"fan_out"``.

    >>> tg.random.kaiming_normal((8, 3, 3, 3)).shape
    (8, 3, 3, 3)
    """
    return normal(0.0, _kaiming("random.kaiming_normal", shape, a, mode, dtype), shape, dtype)


def glorot_uniform(shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw evenly within ``sqrt(6 / (fan_in + fan_out))`` of 0: Keras's of this name.

    >>> bool(abs(tg.random.glorot_uniform((2, 4))).max() <= 1.0)
    True
    """
    return _evenly(_root(6.0, "random.glorot_uniform", "fan_sum", shape, dtype), shape, dtype)


def glorot_normal(shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw truncated, with standard deviation ``sqrt(2 / (fan_in + fan_out))``: Keras's.

    >>> tg.random.glorot_normal((2, 4)).shape
    (2, 4)
    """
    return _truncated(_root(2.0, "random.glorot_normal", "fan_sum", shape, dtype), shape, dtype)


def he_uniform(shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw evenly within ``sqrt(6 / fan_in)`` of 0: Keras's of this name.

    >>> bool(abs(tg.random.he_uniform((6, 4))).max() <= 1.0)
    True
    """
    return _evenly(_root(6.0, "random.he_uniform", "fan_in", shape, dtype), shape, dtype)


def he_normal(shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw truncated, with standard deviation ``sqrt(2 / fan_in)``: Keras's of this name.

    >>> tg.random.he_normal((2, 4)).shape
    (2, 4)
    """
    return _truncated(_root(2.0, "random.he_normal", "fan_in", shape, dtype), shape, dtype)


def lecun_uniform(shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw evenly within ``sqrt(3 / fan_in)`` of 0: Keras's of this name.

    >>> bool(abs(tg.random.lecun_uniform((3, 4))).max() <= 1.0)
    True
    """
    return _evenly(_root(3.0, "random.lecun_uniform", "fan_in", shape, dtype), shape, dtype)


def lecun_normal(shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw truncated, with standard deviation ``sqrt(1 / fan_in)``: Keras's of this name.

    >>> tg.random.lecun_normal((2, 4)).shape
    (2, 4)
    """
    return _truncated(_root(1.0, "random.lecun_normal", "fan_in", shape, dtype), shape, dtype)


def orthogonal(shape: Shape, gain: float = 1.0, dtype: npt.DTypeLike | None = None) -> Array:
    """Draw a matrix with orthogonal rows or columns, of length ``gain``: PyTorch's of this name.

    All such matrices are equally likely. With more axes, each element of the first is a row.

    >>> q = tg.random.orthogonal((4, 2), gain=3.0)
    >>> np.allclose(q.T @ q, 9.0 * np.eye(2))
    True
    """
    name = "random.orthogonal"
    kind, factor = _floating(name, dtype), _gain(name, gain)
    lengths = _matrix(name, shape)
    rows, columns = lengths[0], math.prod(lengths[1:])

    def draw() -> DuckArray:
        z = _shared().standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(z)
        q = q * np.where(np.diagonal(r) < 0.0, -factor, factor)  # else signs are not even
        return (q if rows >= columns else q.T).reshape(lengths)

    return drawn(name, draw, kind, gain=factor)


def _evenly(bound: float, shape: Shape, dtype: npt.DTypeLike | None) -> Array:
    return uniform(-bound, bound, shape, dtype)


def _truncated(deviation: float, shape: Shape, dtype: npt.DTypeLike | None) -> Array:
    return truncated_normal(0.0, deviation / _TRUNCATED, shape, dtype)


def _kaiming(op: str, shape: Shape, a: float, mode: str, dtype: npt.DTypeLike | None) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(message(op, f"mode={mode!r}", "'fan_in' or 'fan_out'"))
    return _root(2.0, op, mode, shape, dtype, 1.0 + _number(op, "a", a, _FLOAT64) ** 2)


def _root(
    numerator: float,
    op: str,
    mode: str,
    shape: Shape,
    dtype: npt.DTypeLike | None,
    factor: float = 1.0,
) -> float:
    """Return the root of a number over the fans; an empty array's fans are 1."""
    _floating(op, dtype)
    first, second, *spatial = _matrix(op, shape)
    places = math.prod(spatial)
    # A kernel's first axis is its outputs.
    into, out = (second * places, first * places) if spatial else (first, second)
    fans = {"fan_in": max(into, 1), "fan_out": max(out, 1)}
    fans["fan_sum"] = sum(fans.values())
    return math.sqrt(numerator / (factor * fans[mode]))


def _matrix(op: str, shape: Shape) -> tuple[int, ...]:
    if getattr(shape, "requires_grad", False):
        fix = f"Draw before the parameter is made: w = tg.param(tg.{op}(shape))."
        raise TypeError(message(op, f"{kind_of(shape)} for 'shape'", "lengths of axes", fix))
    lengths = _shape(op, "shape", shape)
    if len(lengths) < 2:
        fix = "For a vector draw with normal or uniform."
        raise ValueError(message(op, f"shape={shape!r}", "two axes or more", fix))
    return lengths


def _gain(op: str, gain: float) -> float:
    factor = _number(op, "gain", gain, _FLOAT64)
    if factor < 0.0:
        raise ValueError(message(op, f"gain={gain}", "a gain that is not negative"))
    return factor


# What `tapegraph.dropout` is made of


def keep_mask(shape: tuple[int, ...], p: float) -> Array:
    return drawn("random.kept", lambda: _shared().random(shape) >= p, np.bool_, p=p)


def keep_scale(p: float) -> float:
    """Return dropout's factor for kept elements, which preserves the mean."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def share(op: str, p: float) -> float:
    """Return dropout's share as a float, or raise if it is outside [0, 1]."""
    fix = "For tensors write tg.where(tg.random.uniform(size=x.shape) < p, 0.0, x / (1.0 - p))."
    rate = _number(op, "p", p, _FLOAT64, fix)
    if not 0.0 <= rate <= 1.0:
        raise ValueError(message(op, f"p={rate}", "the share that is dropped, in [0, 1]"))
    return rate


def drawn(op: str, draw: Callable[[], DuckArray], dtype: npt.DTypeLike, **by: float) -> Array:
    """Draw now; in a captured step, return a leaf that every run draws anew, keyed by ``by``."""
    take: Callable[[], Array] = partial(recorder().draw, op, draw, dtype, by)
    for block in _REPEATED.value():  # the innermost is asked first
        take = partial(block.numbers, take)
    return take()


def _stretched(z: DuckArray, start: float, width: float) -> DuckArray:
    """Return ``start + width * z`` in z's dtype, infinite on overflow as in NumPy."""
    with np.errstate(over="ignore"):
        return start + width * z


def _shape(op: str, argument: str, size: Shape | None) -> tuple[int, ...]:
    shape = () if size is None else int_tuple(op, argument, size)
    if min(shape, default=0) < 0:
        raise ValueError(message(op, f"{argument}={size!r}", "lengths that are not negative"))
    return shape


def _floating(op: str, dtype: npt.DTypeLike | None) -> DType:
    try:
        kind: DType = get_default_dtype() if dtype is None else np.dtype(dtype)
        if kind in _LARGEST:
            return kind
    except TypeError:
        pass
    raise TypeError(message(op, f"dtype {dtype!r}", "float32 or float64"))


def _number(op: str, argument: str, value: object, kind: DType, fix: str = "") -> float:
    recorder().fixed(op, value, argument, fix)
    if not isinstance(value, numbers.Real):
        raise TypeError(message(op, f"{kind_of(value)} for {argument!r}", "a number", fix))
    number: Any = value
    if not -_LARGEST[kind] <= number <= _LARGEST[kind]:  # nor is NaN
        raise ValueError(message(op, f"{argument}={value}", f"a number that is finite in {kind}"))
    return float(number)


def _place_and_width(
    op: str, loc: float, scale: float, kind: DType, fix: str = ""
) -> tuple[float, float]:
    mean, deviation = _number(op, "loc", loc, kind, fix), _number(op, "scale", scale, kind, fix)
    if deviation < 0.0:
        raise ValueError(message(op, f"scale={deviation}", "a scale that is not negative"))
    return mean, deviation


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    raise missing_in("random", name)

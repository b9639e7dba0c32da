"""NumPy calls as records: the same inner loops, called by C.

A record is the call of one inner loop (`_records.c`). `resolve_dtypes` of a ufunc and `nditer` give
the loop and its pieces. Then records of each operation and layout run on numbers of all kinds: if
one bit differs from NumPy's, or without the extension, the call stays a line of Python.
"""

from __future__ import annotations

import importlib
import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tapegraph.environment import RECORDS, switched
from tapegraph.fallback.plan.ir import placed
from tapegraph.pytree import leaves, mapped
from tapegraph.typed import Array, DType

# Whose elements come out alike however they are taken together: an operation of IEEE's, a choice.
# Others have faster code for contiguous memory, which rounds differently.
_EXACT = {
    *(np.add, np.subtract, np.multiply, np.divide, np.negative, np.positive, np.square),
    *(np.sqrt, np.reciprocal, np.absolute, np.sign, np.isnan, np.isfinite, np.isinf),
    *(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
    *(np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.signbit, np.conjugate),
}
_PARTWISE = {np.add, np.subtract, np.negative, np.positive, np.conjugate}
_NUMPYS = {f for f in vars(np).values() if isinstance(f, np.ufunc)}
# Of integers: those that cannot raise.
_WHOLE = _EXACT - {np.divide, np.reciprocal}
_REDUCED = {np.add, np.multiply, np.maximum, np.minimum}
# Of more bytes NumPy's own call costs little beside its loops. On rows of few elements loops of our
# own take half of the time or less, up to the largest arrays; there all else must be little work.
_LARGE, _LARGEST, _MOST_OTHER = 1 << 15, 1 << 22, 1 << 12
_SHORT, _FEW = {np.add, np.subtract, np.multiply, np.divide}, 512
_FEW_SUMS = 64  # side by side; of two NaN in more of them NumPy keeps the other one
_LETTERS = set("?bhilqBHILQfdFD")
# The records that an operation may take: more elements in a row are worth a line of Python.
_MOST_AXES, _MOST_OPERANDS = 4, 4
# How many elements a proof compares, and numbers that are none, or hardly.
_COMPARED, _PATTERN = 512, 4093
_ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 1e-310, 1e-40, 700.0])


class Record(NamedTuple):
    """One inner loop, called along ``outer`` axes.

    :ivar loop, index: A ufunc and the number of its loop, or the name of one in ``_records.c``.
    :ivar sizes, steps: The loop's arguments besides the operands.
    :ivar outer: The length of each axis, and the step of each operand.
    :ivar places: Each operand, as a number and an offset in bytes: the call's operands, the result,
        and the records' own arrays.
    """

    loop: Any
    index: int  # type: ignore[assignment]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, int], ...]


class Records(NamedTuple):
    """A call as records; ``large`` ones are worth it alone."""

    records: list[Record]
    held: list[Array]
    work: int
    large: bool = False


class NotRecords(Exception):
    """A call has no records."""


try:
    _extension: Any = importlib.import_module("tapegraph.fallback.plan._records")
    Mismatch: type[Exception] = _extension.Mismatch
    missing = ""
    _source = Path(__file__).with_name("_records.c")  # in a checkout
    _built_from = getattr(_extension, "source", -1)
    if _source.exists() and zlib.crc32(_source.read_bytes()) >> 1 != _built_from:
        raise ImportError("_records.c has changed: run `python setup.py build_ext --inplace`")
except ImportError as error:
    _extension, missing = None, str(error)

    class Mismatch(Exception):  # type: ignore[no-redef]
        """An argument's layout differs from the one that a table was made for."""


def off() -> str:
    """Return why no plan has records; ``""`` if plans have them."""
    if switched(RECORDS) is False:
        return f"{RECORDS}=0"
    return f"the C extension is not used ({missing})" if _extension is None else ""


def table(
    records: Iterable[tuple[Record, Sequence[tuple[int, int]]]],
    fixed: Sequence[Array],
    inputs: Sequence[object] = (),
    outputs: Sequence[Array] = (),
) -> Any:
    """Return records as one function of arrays that lie as ``inputs`` do.

    It returns new arrays like ``outputs``: none, one, or a tuple of them.

    :param records: Each with its operands' places: the number of an array of ``fixed``, ``inputs``
        and ``outputs``, and an offset in bytes.
    :raises Mismatch: In the function: an input has another layout; no record has run.
    """
    numbers: list[int] = []
    known: dict[tuple[int, ...], int] = {}

    def noted(values: tuple[int, ...]) -> int:
        if values not in known:
            known[values] = len(numbers)
            numbers.extend(values)
        return known[values]

    rows = []
    for r, places in records:
        outer = noted((len(r.outer), *(x for axis in r.outer for x in axis))) if r.outer else -1
        rows.append((r.loop, r.index, noted(r.sizes), noted(r.steps), outer, tuple(places)))
    ints = np.array(numbers, np.intp)
    given, made = (tuple(map(_layout_alone, xs)) for xs in (inputs, outputs))
    return _extension.Table(rows, ints, tuple(fixed), given, made)


def _layout_alone(x: Any) -> Any:
    if isinstance(x, np.generic):
        return x
    return as_strided(np.empty(1, x.dtype), x.shape, x.strides)


# Which records


def records_of(
    function: object, args: Sequence[object], kwargs: dict[str, Any], out: object
) -> Any:
    """Return the records of a call on arrays of this layout, or None."""
    owner = getattr(function, "__self__", None)
    method = getattr(function, "__name__", "") if isinstance(owner, np.ufunc) else ""
    try:
        given = (args, *sorted(kwargs.items()))
        key = (owner if method else function, method, _layout(given), _layout(out))
        hash(key)
    except (NotRecords, TypeError):
        return None
    if key not in _known:
        arrays = [x for _, x in leaves(tuple(args)) if _is_array(x)]
        try:
            found = _Writer(arrays, out).write(function, args, kwargs)
            _known[key] = found if _is_proven(found, function, args, kwargs, out) else None
        except (NotRecords, LookupError, TypeError, ValueError):
            _known[key] = None
    return _known[key]


_known: dict[Any, Records | None] = {}


def copies(x: object, out: Array) -> Records:
    """Return the records that copy an array of any size, or a NumPy number, into another."""
    writer = _Writer([x], out)
    writer._convert(*writer._operands)
    return Records(writer.records, [], writer.work)


def may_copy(x: Any) -> bool:
    return _is_array(x) and x.dtype.char in _LETTERS and x.size > 0 and x.flags.aligned


def may_look(x: Any) -> bool:
    """Return whether records can look for a NaN in an array whose dtype has one."""
    return may_copy(x) and (x.flags.c_contiguous or x.ndim <= _MOST_AXES)


def looks(x: object, found: Array) -> Records:
    """Return the records that set a bool where an array, or a number of NumPy's, has a NaN."""
    writer = _Writer([x], found)
    array, out = writer._operands
    along = writer._view(as_strided(out, array.shape, (0,) * array.ndim), out)
    writer._add(f"nan_{array.dtype.name}", 0, [array, along])
    return Records(writer.records, [], writer.work)


def _layout(x: object) -> Any:
    if isinstance(x, (tuple, list)):
        return (type(x), *map(_layout, x))
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype.char not in _LETTERS or not x.dtype.isnative or not 0 < x.nbytes <= _LARGEST:
            raise NotRecords
        return (type(x), x.dtype.char, x.shape, x.strides)
    if isinstance(x, slice):
        return (slice, x.start, x.stop, x.step)
    return (type(x), repr(x) if type(x) is float else x)


class _Writer:
    """Writes the records of one call on arrays of a layout."""

    def __init__(self, arrays: Sequence[object], out: object) -> None:
        # Each in a new object: one array here may be two in another run.
        self._operands = [np.asarray(a).view() for a in (*arrays, out)]
        self._count = len(self._operands)
        self._numbers = {id(a): i for i, a in enumerate(self._operands)}
        self._views: list[Array] = []
        self.out = self._operands[-1]
        self.records: list[Record] = []
        self.work = self._in_rows = 0  # all, and that of loops along many short rows

    def write(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Records:
        owner = getattr(function, "__self__", None)
        operands = iter(self._operands)
        given = mapped(partial(_next, operands), tuple(args))
        if function in (np.matmul, np.dot) and not kwargs:
            self._matmul(*given)
        elif isinstance(function, np.ufunc) and not kwargs:
            self._elementwise(function, given)
        elif isinstance(owner, np.ufunc) and owner in _REDUCED and function.__name__ == "reduce":
            self._reduce(owner, given[0], **kwargs)
        elif function is np.mean:
            self._mean(given[0], **kwargs)
        elif function is np.where and len(given) == 3 and not kwargs:
            self._where(*given)
        elif function is np.clip and not kwargs:
            x, low, high = given
            self._elementwise(np.maximum, [x, low])
            self._elementwise(np.minimum, [self.out, high])
        elif function is pow and given[1] == 0.5:
            self._elementwise(np.sqrt, given[:1])
        elif function is np.vecdot:
            self._dots(*given, **kwargs)
        elif function == np.reshape.__name__:  # which copies
            self._convert(given[0], self._view(self.out.reshape(given[0].shape), self.out))
        elif function is np.concatenate:
            self._concatenate(*given, **kwargs)
        elif function is placed:
            g, _, _, key = given
            self._convert(self._held(np.zeros((), self.out.dtype)), self.out)
            self._convert(g, self._view(self.out[(*key, ...)], self.out))
        elif function in (np.copy, "astype", "copy"):
            self._convert(given[0], self.out)
        else:
            raise NotRecords
        large = any(a.nbytes > _LARGE for a in self._operands)
        if large and self.work - self._in_rows > _MOST_OTHER:
            raise NotRecords
        return Records(self.records, self._operands[self._count :], self.work, large)

    def _held(self, array: Array) -> Array:
        self._numbers[id(array)] = len(self._operands)
        self._operands.append(array)
        return array

    def _view(self, view: Array, array: Array) -> Array:
        self._numbers.setdefault(id(view), self._numbers[id(array)])
        self._views.append(view)
        return view

    def _add(
        self,
        loop: object,
        index: int,
        arrays: Sequence[Array],
        *,
        part: tuple[slice, ...] = (),
        alone: bool = False,
    ) -> None:
        """Add the record of an element-wise loop, its result the last of the arrays."""
        out = arrays[-1]
        walk = np.nditer(list(arrays))
        key: Any = (*part, ...)
        views = [v[key] for v in walk.itviews]
        shape = views[0].shape
        steps = [v.strides for v in views]
        if walk.itersize == 1 and not part:  # as NumPy calls it
            steps, shape = [(0,) if a.ndim == 0 else (a.itemsize,) for a in arrays], (1,)
            steps[-1] = (out.itemsize,)
        one_run = all(s[-1] in (0, v.itemsize) for s, v in zip(steps, views, strict=True))
        if len(shape) > _MOST_AXES or (alone and (len(shape) > 1 or not one_run)):
            raise NotRecords
        inner = tuple(s[-1] for s in steps)
        outer = [(n, *(s[axis] for s in steps)) for axis, n in enumerate(shape[:-1])]
        places, sizes = tuple(map(self._place, views, arrays)), shape[-1:]
        few = _FEW_SUMS if arrays[0] is out else _FEW
        if loop in _SHORT and shape[-1] <= few and out.dtype.char in "fd":
            if all(s in (0, out.itemsize) for s in inner) and inner[-1]:
                loop = f"{loop.__name__}_{out.dtype.name}"
                if outer:
                    self._in_rows += math.prod(shape)
                    loop = f"rows_{loop}"
                    rows, *beside = outer.pop()
                    sizes, inner = (*sizes, rows), (*inner, *beside)
        self.records.append(Record(loop, index, sizes, inner, tuple(outer), places))
        self.work += math.prod(shape) * (8 if alone else 1)

    def _place(self, view: Array, array: Array) -> tuple[int, int]:
        number = self._numbers[id(array)]
        return number, address_of(view) - address_of(self._operands[number])

    def _elementwise(self, ufunc: np.ufunc, given: Sequence[Any]) -> None:
        out = self.out
        if ufunc not in _NUMPYS or ufunc.signature is not None or ufunc.nout != 1:
            raise NotRecords
        weak = [x.dtype if _is_array(x) else _weak(x) for x in given]
        *wanted, result = ufunc.resolve_dtypes((*weak, None))
        letters = "".join(d.char for d in wanted) + "->" + result.char
        if result != out.dtype or letters not in ufunc.types or len(given) >= _MOST_OPERANDS:
            raise NotRecords
        if any(d.kind in "iu" for d in (*wanted, result)) and ufunc not in _WHOLE:
            raise NotRecords
        arrays = [self._as(x, d) for x, d in zip(given, wanted, strict=True)]
        apart = any(d.kind == "c" for d in wanted)  # a product of complex numbers is several
        plain = ufunc in (_PARTWISE if apart else _EXACT)
        if apart and not plain and not out.ndim:
            raise NotRecords  # NumPy rounds a number of two parts now so, now so
        self._add(ufunc, ufunc.types.index(letters), [*arrays, out], alone=not plain)

    def _as(self, x: Any, dtype: DType) -> Array:
        """Return an operand in the dtype of a loop, converted by records if needed."""
        if not _is_array(x):
            return self._held(np.array(x, dtype))
        if x.dtype == dtype:
            return x
        return self._convert(x, self._held(np.empty(x.shape, dtype)))

    def _convert(self, x: Array, out: Array) -> Array:
        if x.dtype == out.dtype:
            loop = f"copy_{x.itemsize}"
        else:
            loop = f"{x.dtype.name}_{out.dtype.name}"
        self._add(loop, 0, [x, out])
        return out

    def _concatenate(self, arrays: Sequence[Any], axis: int = 0) -> None:
        begin, before = 0, (slice(None),) * (axis % self.out.ndim)
        for x in arrays:
            end = begin + x.shape[axis]
            self._convert(x, self._view(self.out[(*before, slice(begin, end))], self.out))
            begin = end

    def _where(self, mask: Any, a: Any, b: Any) -> None:
        if not _is_array(mask) or mask.dtype != np.bool_:
            raise NotRecords
        chosen = [self._as(x, self.out.dtype) for x in (a, b)]
        self._add(f"where_{self.out.itemsize}", 0, [mask, *chosen, self.out])

    def _dots(self, a: Array, b: Array, axis: int = -1) -> None:
        out = self.out
        if not a.dtype == b.dtype == out.dtype or a.shape != b.shape or out.dtype.kind != "f":
            raise NotRecords
        sides = [self._view(np.moveaxis(x, axis, -1), x) for x in (a, b)]
        within = [side.strides[-1] for side in sides]
        firsts = [*(side[..., 0] for side in sides), out]
        self._products(np.vecdot, [*sides, out], firsts, (a.shape[axis],), within)

    def _reduce(
        self, ufunc: np.ufunc, x: Array, axis: Any = 0, keepdims: bool = False, initial: Any = None
    ) -> None:
        out = self.out
        if x.dtype != out.dtype or x.ndim == 0 or x.dtype.kind not in "fc":
            raise NotRecords
        axes = range(x.ndim) if axis is None else np.atleast_1d(axis) % x.ndim
        if not len(axes):
            raise NotRecords
        steps, left = [], list(out.strides)
        for i in range(x.ndim):
            steps.append(0 if i in axes else left[0])
            if i not in axes or keepdims:
                left.pop(0)
        along = self._view(as_strided(out, x.shape, steps), out)
        walk = np.nditer([x, along]).itviews
        summed = [i for i, s in enumerate(walk[1].strides) if s == 0 and walk[0].shape[i] > 1]
        # What lies along several axes NumPy may copy together first; what runs backwards it does
        # not turn round, as the walk here would.
        if len(summed) != 1 or min(x.strides) < 0:
            raise NotRecords
        cut, others = (slice(None),) * summed[0], slice(None)
        if initial is None and ufunc in (np.maximum, np.minimum):  # of the first, and the others
            self._add(f"copy_{x.itemsize}", 0, [x, along], part=(*cut, slice(0, 1)))
            others = slice(1, None)
        else:
            empty = _NO_SUM if ufunc is np.add else 1
            start = self._held(np.array(empty if initial is None else initial, x.dtype))
            self._add(f"copy_{x.itemsize}", 0, [start, out])
        self._add(ufunc, _index(ufunc, x), [along, x, along], part=(*cut, others))

    def _mean(self, x: Array, axis: object = None, keepdims: bool = False) -> None:
        if x.dtype.char not in "fd":
            raise NotRecords
        self._reduce(np.add, x, axis, keepdims)
        count = self._held(np.array(x.size // self.out.size, x.dtype))
        self._elementwise(np.divide, [self.out, count])

    def _matmul(self, a: Array, b: Array) -> None:
        out, letter = self.out, self.out.dtype.char
        if a.dtype != out.dtype or b.dtype != out.dtype or letter not in "fdFD":
            raise NotRecords
        # A vector is a matrix of one row, or of one column.
        rows = a if a.ndim > 1 else a[None]
        columns = b if b.ndim > 1 else b[:, None]
        whole = out
        if a.ndim == 1:
            whole = whole[..., None, :] if b.ndim > 1 else whole[None]
        if b.ndim == 1:
            whole = whole[..., None]
        (m, k), n = rows.shape[-2:], columns.shape[-1]
        sides = [self._view(rows, a), self._view(columns, b), self._view(whole, out)]
        within = [step for side in sides for step in side.strides[-2:]]
        firsts = [side[..., 0, 0] for side in sides]
        self._products(np.matmul, sides, firsts, (m, k, n), within)

    def _products(
        self,
        ufunc: Any,
        sides: Sequence[Array],
        firsts: Sequence[Array],
        lengths: tuple[int, ...],
        within: Sequence[int],
    ) -> None:
        """Add the record of a loop that makes many products.

        :param sides: The operands and the result, which it takes by their ``firsts``: the first
            element of each product.
        :param lengths: The lengths of the axes of one product; ``within`` are the steps along them.
        """
        walk = np.nditer(list(firsts))
        views = walk.itviews
        shape = views[0].shape if walk.itersize > 1 else ()
        if len(shape) > _MOST_AXES:
            raise NotRecords
        steps = [v.strides if len(shape) else (0,) for v in views]
        inner = (*(s[-1] for s in steps), *within)
        outer = tuple((length, *(s[axis] for s in steps)) for axis, length in enumerate(shape[:-1]))
        sizes = (shape[-1] if shape else 1, *lengths)
        places = tuple(map(self._place, views, sides))
        self.records.append(Record(ufunc, _index(ufunc, self.out), sizes, inner, outer, places))
        self.work += math.prod(shape) * math.prod(lengths)


def _index(ufunc: Any, like: Array) -> int:
    """Return the number of a ufunc's loop of two operands and a result of one dtype."""
    letter = like.dtype.char
    return ufunc.types.index(f"{letter}{letter}->{letter}")


def _next(arrays: Iterator[Array], x: object) -> Any:
    return next(arrays) if _is_array(x) else x


def _is_array(x: object) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


def _weak(x: object) -> Any:
    if type(x) is bool:
        return np.dtype(bool)
    if type(x) not in (int, float, complex):
        raise NotRecords
    return type(x)


def address_of(array: Array) -> int:
    return array.__array_interface__["data"][0]


# The start of a sum: newer versions of NumPy keep the sign of zero.
_NO_SUM = float(np.add.reduce(np.array([-0.0, -0.0])))


# Proofs


def _is_proven(
    found: Records, function: Any, args: Sequence[object], kwargs: dict[str, Any], out: object
) -> bool:
    """Return whether records give the call's result, to the bit."""
    shapes = [x for _, x in leaves((*args, out)) if _is_array(x)]
    blocks, arrays = zip(*map(_lying_as, shapes), strict=True)
    run = table([(r, r.places) for r in found.records], [*arrays, *found.held])
    rng = np.random.default_rng(0)
    trials = 1 if found.large else min(max(_COMPARED // arrays[-1].size, 4), 64) // 2
    numbers_of = [_numbers(block, trials, rng) for block in blocks]
    for trial, odd in itertools.product(range(trials), (0, 1)):
        for block, drawn in zip(blocks, numbers_of, strict=True):
            few = drawn[odd, trial]
            block[...] = few if few.size == block.size else np.resize(few, block.size)
        both = zip(shapes, arrays, strict=True)
        numbers = iter([a[()] if isinstance(x, np.generic) else a for x, a in both])
        given = mapped(partial(_next, numbers), tuple(args))
        with np.errstate(all="ignore"):
            if isinstance(function, str):
                want = getattr(given[0], function)(*given[1:], **kwargs)
            else:
                want = function(*given, **kwargs)
        run()
        want = np.asarray(want)
        if want.dtype != arrays[-1].dtype or want.tobytes() != arrays[-1].tobytes():
            return False
    return True


def _lying_as(x: Any) -> tuple[Array, Array]:
    """Return memory, and an array that lies in it as another lies in its own."""
    axes = list(zip(x.shape, x.strides, strict=True))
    block = np.empty(sum((n - 1) * abs(s) for n, s in axes) // x.itemsize + 1, x.dtype)
    start = sum((n - 1) * -s for n, s in axes if s < 0)
    return block, np.ndarray(x.shape, x.dtype, block.view(np.uint8), start, x.strides)


def _numbers(block: Array, trials: int, rng: np.random.Generator) -> Array:
    """Return numbers of all sizes for each trial, and odd ones: infinite, tiny, or NaN."""
    kind, dtype = block.dtype.kind, block.dtype
    shape = 2, trials, min(block.size, _PATTERN) * (1 + (kind == "c"))  # large arrays repeat them
    if kind in "biu":
        return rng.integers(0, 2 if kind == "b" else 9, shape).astype(dtype)
    parts = (rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)).astype(block.real.dtype)
    some = rng.random(shape[1:]) < 0.3
    parts[1, some] = rng.choice(_ODD, int(some.sum()))
    return parts.view(dtype)

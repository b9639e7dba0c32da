"""Chains: calls in a row of a plan that give, row by row, arrays of one shape.

A chain may be made block by block: all its calls on some rows, then on the next. What it alone
reads is then no longer than a block, and stays in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tapegraph.fallback.plan.ir import METHOD, Call, Calls, Held, Leaf, lies_alike, mapped
from tapegraph.fallback.plan.memory import Buffers
from tapegraph.typed import Array

# How a value lies beside a chain of shape (..., n): (..., n), (..., 1), (...), or the same for
# every row.
FULL, ROW, LINE, SAME = "full", "row", "line", "same"


class Chain:
    """Calls that can be made block by block.

    Attributes
    ----------
    shape : tuple of int
        The shape of what it gives.
    axes : int
        So many leading axes can be cut.
    calls : list of Call
        In order.
    """

    def __init__(self, shape: tuple[int, ...], spread: dict[int, Held]) -> None:
        self.shape = shape
        self.axes = len(shape)
        self.calls: list[Call] = []
        self._made: dict[int, str] = {}  # how its own values lie, by id
        self._spread = spread  # what `np.broadcast_to` repeats, by the id of its result

    def add(self, call: Call) -> bool:
        """Add a call, if it is one of the kind."""
        fit = self._fit(call)
        if fit is None:
            return False
        kind, self.axes = fit
        self.calls.append(call)
        self._made[id(call.results[0])] = kind
        return True

    def reads(self, call: Call) -> bool:
        """Tell whether a call reads what the chain gives."""
        return any(id(held) in self._made for held in call.reads)

    def operand(self, held: Held) -> tuple[Held, str, int] | None:
        """Return what is read of a value, how it lies, and how many axes can be cut."""
        shape, ndim = self.shape, len(self.shape)
        held = self._spread.get(id(held), held)
        kind = self._made.get(id(held))
        if kind is not None:
            return held, kind, ndim - (kind != FULL)
        value = held.value
        if isinstance(value, np.generic):
            return held, SAME, ndim
        if type(value) is not np.ndarray or any(id(root) in self._made for root in held.roots):
            return None
        if value.shape == shape:
            return (held, FULL, ndim) if value.flags.c_contiguous else None
        if value.shape == (*shape[:-1], 1) and value.flags.c_contiguous:
            return held, ROW, ndim - 1
        tail = inner(value.shape)
        if all(a in (1, b) for a, b in zip(tail[::-1], shape[::-1], strict=False)):
            return held, SAME, ndim - len(tail)
        return None

    def _fit(self, call: Call) -> tuple[str, int] | None:
        """Return how the result of a call lies, and how many axes can be cut, if it belongs."""
        if call.kept or call.moulded or len(call.results) != 1:
            return None
        out = call.results[0].value
        operands = [self.operand(held) for held in call.reads]
        if type(out) is not np.ndarray or not out.flags.c_contiguous or None in operands:
            return None
        known = [operand for operand in operands if operand is not None]
        kind = self._kind(call, out, known)
        axes = min([self.axes, *(axes for _, _, axes in known)])
        if kind != FULL:
            axes = min(axes, len(self.shape) - 1)
        return (kind, axes) if kind and math.prod(self.shape[:axes]) > 1 else None

    def _kind(self, call: Call, out: Array, operands: list[tuple[Held, str, int]]) -> str:
        shape, row = self.shape, (*self.shape[:-1], 1)
        kinds = [kind for _, kind, _ in operands]
        if call.into and call.elementwise:
            spread = np.broadcast_shapes(*(held.value.shape for held, _, _ in operands))
            if call.kwargs or LINE in kinds or spread != out.shape:
                return ""
            if out.shape == shape:
                return FULL
            return ROW if out.shape == row and self.reads(call) else ""
        if call.name.endswith(".reduce"):
            last = _is_last(call.kwargs.get("axis", 0), len(shape))
            wanted = call.kwargs.keys() <= {"axis", "keepdims", "initial"}
            fits = call.into and last and wanted and kinds == [FULL] and out.shape == row
            return ROW if fits else ""
        if call.function is np.vecdot:
            last = _is_last(call.kwargs.get("axis", -1), len(shape))
            return LINE if call.into and last and kinds == [FULL, FULL] else ""
        if call.function is np.expand_dims:
            return ROW if kinds == [LINE] and out.shape == row else ""
        if call.form == METHOD and call.name == "view":
            same = out.shape == shape and out.itemsize == call.reads[0].value.itemsize
            return FULL if same and kinds == [FULL] else ""
        return ""


class Blocks(Call):
    """A chain, with so many rows in a block.

    Attributes
    ----------
    lines : list of Call
        The calls on a block.
    given : list of (Held, Leaf, str)
        What it reads, its name on a block, and how it lies.
    made : list of (Held, Held, str)
        What it gives to others, its name on a block, and how it lies.
    rows, count : int
        The length of a block, and the number of blocks.
    scratch : dict of int to ndarray
        The memory of what lies between the calls, by id.
    """

    __slots__ = ("_last", "_tails", "count", "given", "lines", "made", "rows", "scratch")

    def __init__(
        self, chain: Chain, rows: int, read: set[int], free: dict[int, list[Array]]
    ) -> None:
        shape, axes = chain.shape, chain.axes
        self.rows = rows
        self.count = math.prod(shape[:axes]) // rows
        full = (rows, *shape[axes:])
        self._tails = {FULL: full, ROW: (*full[:-1], 1), LINE: full[:-1]}
        self.given: list[tuple[Held, Leaf, str]] = []
        self.made: list[tuple[Held, Held, str]] = []
        self._last: dict[int, int] = {}
        calls, inside = Calls(), dict[int, Held]()

        def block(held: Any) -> Any:
            if not isinstance(held, Held):
                return held
            source, kind, _ = chain.operand(held) or (held, SAME, 0)
            if id(source) not in inside:
                leaf = Leaf(self.cut(source.value, kind)[0], hint=source.hint)
                self.given.append((source, leaf, kind))
                inside[id(source)] = leaf
            self._last[id(source)] = number
            return inside[id(source)]

        for number, call in enumerate(chain.calls):  # noqa: B007 - read above
            args, kwargs = mapped(block, call.args), dict(call.kwargs)
            if "axis" in kwargs:
                kwargs["axis"] = -1
            if call.function is np.expand_dims:
                args = (args[0], -1)
            how: dict[str, Any] = {"into": call.into, "elementwise": call.elementwise}
            calls.place = call.place
            (result,) = call.results
            found = calls.make(
                Call(call.function, call.name, args, kwargs, form=call.form, **how), result.hint
            )
            inside[id(result)] = found
            if result.roots[0] is result and id(result) in read:
                _, kind, _ = chain.operand(result) or (None, FULL, 0)
                self.made.append((result, found, kind))
        self.lines = calls.lines
        super().__init__(None, "blocks", tuple(held for held, _, _ in self.given), {}, into=True)
        self.results = [held for held, _, _ in self.made]
        buffers = Buffers(self.lines, [found for _, found, _ in self.made], free)
        self.scratch = buffers.of

    def shape_of(self, kind: str) -> tuple[int, ...]:
        """Return the shape of an array cut into blocks."""
        return (self.count, *self._tails[kind])

    def cut(self, value: Any, kind: str) -> Any:
        """Return the blocks of an array, or of what is the same for all a list of it."""
        if kind != SAME:
            return value.reshape(self.shape_of(kind))
        return [value.reshape(inner(value.shape)) if value.ndim else value]

    def may_overwrite(self, held: Held, place: int) -> bool:
        """Tell whether the result at a place may lie where an operand does."""
        kinds = {id(source): kind for source, _, kind in self.given}
        result, found, kind = self.made[place]
        written = next(i for i, call in enumerate(self.lines) if call.results[0] is found)
        if kinds.get(id(held)) != kind or kind != FULL:
            return False
        return lies_alike(held, result) and self._last[id(held)] <= written


def inner(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the axes of length 1 that it begins with."""
    start = next((i for i, length in enumerate(shape) if length != 1), len(shape))
    return shape[start:]


def _is_last(axis: Any, ndim: int) -> bool:
    return axis in (-1, ndim - 1, (-1,), (ndim - 1,))


class Stretch:
    """A part of a plan: a chain, and what stands between its calls.

    Attributes
    ----------
    lines : list of Call
        All of it, as it was.
    chain : Chain
        What may be made block by block.
    before, after : list of Call
        What stands between, and can be done before, and after.
    """

    def __init__(self, lines: list[Call], start: int, spread: dict[int, Held]) -> None:
        first = lines[start]
        self.chain = Chain(_shape_of(first), spread)
        self.before: list[Call] = []
        self.after: list[Call] = []
        late: set[int] = set()
        repeats: set[int] = set()  # of what the chain gives, which it can read for itself
        end = start
        for end in range(start, len(lines)):  # noqa: B007 - read below
            call = lines[end]
            read = {id(held) for held in call.reads}
            if not read & late and self.chain.add(call):
                continue
            if call.kept or any(self._is_large(held) for held in call.results):
                break
            waits = bool(read & (late | repeats))
            if waits or self.chain.reads(call):
                self.after.append(call)
                made = late if waits or call.function is not np.broadcast_to else repeats
                made.update(id(held) for held in call.results)
            else:
                self.before.append(call)
        else:
            end += 1
        self.lines = lines[start:end]

    def _is_large(self, held: Held) -> bool:
        """Tell whether a value is memory that should not be kept for longer."""
        size = getattr(held.value, "size", 0)
        return held.roots[0] is held and 4 * size > math.prod(self.chain.shape)

    def read_by_others(self, readers: dict[int, list[Call]], results: Iterable[Held]) -> set[int]:
        """Return which values of the chain the rest of a plan reads, or their memory, by id.

        Parameters
        ----------
        readers : dict of int to list of Call
            The calls that read a value, by its id.
        results : iterable of Held
            What leaves the plan.
        """
        own = {id(call) for call in self.chain.calls}
        outside = {id(h) for held in results for h in (held, *held.roots)}

        def is_read(held: Held) -> bool:
            return id(held) in outside or any(map(reads, readers.get(id(held), ())))

        def reads(call: Call) -> bool:
            # A view is read if somebody reads it; what is repeated the chain reads itself.
            if call.function is np.broadcast_to or (id(call) in own and not call.into):
                return is_read(call.results[0])
            return id(call) not in own

        read = [call.results[0] for call in self.chain.calls if is_read(call.results[0])]
        return {id(h) for held in read for h in (held, *held.roots)}


def _shape_of(call: Call) -> tuple[int, ...]:
    """Return the shape of the arrays that a call goes through."""
    arrays = [held.value for held in (*call.reads, *call.results)]
    return max((getattr(a, "shape", ()) for a in arrays), key=math.prod)

"""Record the arithmetic of Values in a capture: `NUMBERS` runs it, `CHOSEN` picks numbers of it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import CodePlace, ConcretizationError, line_of, message, user_frame
from tapegraph.recording.node import Node, mark_changed, next_seq
from tapegraph.recording.numpy_functions import is_float
from tapegraph.recording.op import OPS, Op
from tapegraph.recording.scopes import recorder
from tapegraph.recording.values import Change, make, old_numbers, set_array, set_changed
from tapegraph.recording.watchers import WATCHING
from tapegraph.scalars.numbers import (
    GIVEN,
    LOCAL_GRADS,
    NUMBER,
    SCALAR_OPS,
    TOTAL,
    WEIGHED,
    Numbers,
)
from tapegraph.typed import Array

# The slots of an object: the number of a Value, its gradient, or the array of a tensor.
DATA, GRAD, ARRAY = "_data", "_grad", "_array"
Item = tuple[Any, str]
# Objects with the same slot, and the places of their numbers in a vector.
Column = tuple[str, list[Any], Array]

NUMBERS, CHOSEN, COPIED = Op("numbers"), Op("chosen"), Op("copied")
# Not `Op(name, forward)`, which would enter them in the table of public operations.
NUMBERS.forward = lambda *vectors, numbers: numbers.levels.run(vectors)
CHOSEN.forward = lambda vector, positions: vector.take(positions.array)
COPIED.forward = np.copy
for _op in (NUMBERS, CHOSEN, COPIED):
    _op.differentiable = ()


# Python's floats raise for a division by zero, where a Value's result is infinite.
_PYTHON = {name: name for name in ("add", "sub", "mul", "neg", "abs")}
_PYTHON.update(truediv="python_div", pow="python_pow")


class ScalarState:
    """Numbers of Values, their gradients, and tensors of one number, such as Adam's means."""

    def __init__(self) -> None:
        self.read_from: list[Item] = []
        self.written_to: list[Item] = []
        self._read_in: list[Column] = []
        self._written_in: list[Column] = []

    def close(self) -> None:
        self._read_in, self._written_in = _grouped(self.read_from), _grouped(self.written_to)

    def read(self) -> Array:
        found = np.zeros(len(self.read_from))
        for slot, objects, places in self._read_in:
            held = map(attrgetter(slot), objects)
            found[places] = [array.item() for array in held] if slot == ARRAY else [*held]
        return found

    def changes(self, numbers: Array) -> list[Change]:
        made: list[Change] = []
        changed = next_seq()
        for slot, objects, places in self._written_in:
            new = numbers[places].tolist()
            if slot == ARRAY:
                arrays = list(map(np.array, new))
                made.append(partial(make, map(set_array, objects, arrays)))
                made.append(partial(make, map(set_changed, objects, repeat(changed))))
            else:
                made.append(partial(make, map(setattr, objects, repeat(slot), new)))
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalarState) and self._keys() == other._keys()

    def __hash__(self) -> int:
        return hash(len(self.read_from))

    def __repr__(self) -> str:
        return f"{len(self.read_from)} numbers of Values"

    def _keys(self) -> list[tuple[int, str]]:
        return [(id(x), name) for x, name in (*self.read_from, *self.written_to)]


def _grouped(items: list[Item]) -> list[Column]:
    groups: dict[str, dict[int, Any]] = {}
    for place, (x, name) in enumerate(items):
        slot = ARRAY if isinstance(x, Node) else name  # a tensor has one number
        groups.setdefault(slot, {})[place] = x
    return [(slot, [*xs.values()], np.array([*xs], np.intp)) for slot, xs in groups.items()]


class Positions:
    """An array of places that can be an attribute."""

    __slots__ = ("array",)

    def __init__(self, positions: Sequence[int]) -> None:
        self.array = np.array(positions, np.intp)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash(self.array.tobytes())

    def __repr__(self) -> str:
        return f"{self.array.size} positions"


class _Number(NamedTuple):
    """A number of a capture: its operation and operands, and what it is in the recorded call."""

    kind: str
    args: tuple[int, ...]
    data: float
    place: CodePlace | None
    stays: bool  # it depends on an argument or on state, and must stay in the program


class _Stretch(NamedTuple):
    """The numbers of one `NUMBERS` entry: those before ``stop`` that no earlier entry computes."""

    stop: int
    node: Any
    exports: dict[int, int]  # the numbers that leave, and their places in the entry's vector


class NumberRecorder:
    """The numbers of one capture; ``state`` are those from outside that it reads and writes."""

    def __init__(self, capture: Any) -> None:
        self.capture = capture
        self._numbers: list[_Number] = []
        self._of: dict[tuple[int, str], int] = {}  # the number of an object, by its id and slot
        self._inside: set[int] = set()  # the ids of objects that were made inside
        self._held: list[Any] = []  # so that ids stay theirs
        self._constants: dict[str, int] = {}
        self._outside: dict[int, int] = {}  # where in the state a number is read from
        self._elements: dict[int, tuple[Node, int]] = {}  # its tensor, and the place in it
        self._sources: dict[int, tuple[Any, Array]] = {}
        self._slopes: dict[int, tuple[int, ...]] = {}
        self._written: dict[tuple[int, str], tuple[Any, str]] = {}
        self._segments: list[_Stretch] = []
        self.state = ScalarState()
        ops = {kind: partial(self._op, kind) for kind in SCALAR_OPS}
        self._computes = SimpleNamespace(constant=self.constant, **ops)  # slopes, as of floats
        self._leaf = capture.reading(self.state.read, np.float64)

    # Numbers

    def constant(self, number: float) -> int:
        key = number.hex()
        if key not in self._constants:
            self._constants[key] = self._enter(NUMBER, (), number)
        return self._constants[key]

    def element(self, tensor: Any, position: int = 0) -> int:
        """Return a number of a tensor, which carries no gradient."""
        number = float(tensor._array.reshape(-1)[position])
        if not self.capture.depends(tensor):
            return self.constant(number)
        source, places = self._source(tensor)
        i = self._enter(GIVEN, (), number)
        self._elements[i] = (source, int(places.reshape(-1)[position]))
        return i

    def _source(self, tensor: Any) -> tuple[Any, Array]:
        """Return the tensor that another was picked from by indices, and the places there."""
        if self.capture.may_change(tensor):  # before this is run
            copied = _entry(COPIED, tensor._array.copy(), (tensor,))
            return copied, _places(copied)
        if id(tensor) not in self._sources:
            found = tensor, _places(tensor)
            if tensor._op is OPS["getitem"]:
                source, *keys = tensor._inputs
                fixed = not any(self.capture.depends(key) for key in keys)
                if fixed and not self.capture.may_change(source):
                    source, places = self._source(source)
                    arrays = [key._array for key in keys]
                    places = tensor._op.forward(places, *arrays, **tensor._attrs)
                    found = source, np.asarray(places)
            self._held.append(tensor)
            self._sources[id(tensor)] = found
        return self._sources[id(tensor)]

    def computed(self, kind: str, args: tuple[int, ...], number: float) -> int:
        frame = user_frame(sys._getframe(1))
        return self._enter(kind, args, number, (frame.f_code, frame.f_lasti))

    def _enter(
        self, kind: str, args: tuple[int, ...], number: float, place: CodePlace | None = None
    ) -> int:
        stays = kind == GIVEN or any(self._numbers[a].stays for a in args)
        self._numbers.append(_Number(kind, args, number, place, stays))
        return len(self._numbers) - 1

    def _op(self, kind: str, *args: int) -> int:
        data = SCALAR_OPS[kind].number(*[self._numbers[a].data for a in args])
        return self._enter(kind, args, data)

    def python(self, name: str, operands: tuple[Any, ...]) -> int | None:
        places = []
        for x in operands:
            if is_float(x):
                places.append(x.place if x.source is self else self.element(x.tensor()))
            elif isinstance(x, (float, int)):
                places.append(self.constant(float(x)))
            else:
                return None
        args = tuple(places)
        if name not in _PYTHON:
            fix = "Return it and read it outside, or compute with Values."
            received = self.origin(next(filter(self.stays, args)))
            raise ConcretizationError(message(name, received, "arithmetic with it", fix))
        kind = _PYTHON[name]
        number = SCALAR_OPS[kind].number(*[self._numbers[i].data for i in args])
        return self.computed(kind, args, number)

    def leaf(self, i: int, dtype: Any) -> Any:
        return self.tensor([i])[0].astype(dtype)

    def may_be_read(self, i: int) -> bool:
        return False

    def stays(self, i: int) -> bool:
        return self._numbers[i].stays

    def number(self, i: int) -> float:
        return self._numbers[i].data

    def origin(self, i: int) -> str:
        made = self._numbers[i]
        where = f", recorded at {line_of(*made.place)}" if made.place else ""
        kind = "a Value from outside" if made.kind == GIVEN else f"the {made.kind} of Values"
        return f"{kind}{where}, which differs from run to run"

    # Objects and their numbers

    def enter(self, x: object, i: int) -> None:
        self._of[id(x), DATA] = i
        self._inside.add(id(x))
        self._held.append(x)

    def index(self, x: object, name: str = DATA) -> int:
        """Return the present number of an object, or of its gradient."""
        key = id(x), name
        if key not in self._of:
            if id(x) in self._inside:
                return self.constant(0.0)
            self._held.append(x)
            number = x._array.item() if isinstance(x, Node) else getattr(x, name)
            self._of[key] = i = self._enter(GIVEN, (), number)
            self._outside[i] = len(self.state.read_from)
            self.state.read_from.append((x, name))
        return self._of[key]

    def assign(self, x: Any, name: str, i: int) -> None:
        """Give a Value, its gradient, or a tensor another number, here and in the program."""
        self._of[id(x), name] = i
        if id(x) not in self._inside:
            self._written[id(x), name] = x, name
            self._held.append(x)
            node = isinstance(x, Node)
            before = old_numbers(x) if node else partial(setattr, x, name, getattr(x, name))
            self.capture.undo.appendleft(before)
        if isinstance(x, Node):
            x._array = np.array(self._numbers[i].data)
            mark_changed(x)
        else:
            setattr(x, name, self._numbers[i].data)

    def assign_all(self, objects: Sequence[object], tensor: object) -> None:
        for position, x in enumerate(objects):
            self.assign(x, DATA, self.element(tensor, position))

    def backward(self, root: Any, order: Sequence[Any]) -> None:
        for node in order:
            if node.args and id(node) not in self._inside:
                received = f"the result of {node.op}, from outside the captured program"
                fix = "Compute it inside, or make a leaf of it: Value(result.data)."
                raise RuntimeError(message("Value.backward", received, "results made inside", fix))
        arrived: dict[int, list[int]] = {id(root): [self.constant(1.0)]}
        swept = []
        for node in order:
            cotangent = self._total(arrived.pop(id(node)))
            swept.append((node, self._numbers[cotangent].data))
            if node.args:
                i = self.index(node)
                if i not in self._slopes:
                    kind, args = self._numbers[i][:2]
                    if kind == TOTAL:
                        self._slopes[i] = (self.constant(1.0),) * len(args)
                    else:
                        self._slopes[i] = LOCAL_GRADS[kind](self._computes, i, *args)
                slopes = self._slopes[i]
                for arg, slope in zip(node.args, slopes, strict=True):
                    arrived.setdefault(id(arg), []).append(self._weighed(slope, cotangent))
            held = self.index(node, GRAD)
            before, new = self._numbers[held], cotangent
            if before.kind != NUMBER or before.data:
                new = self._op("add", held, cotangent)
            self.assign(node, GRAD, new)
        for watcher in WATCHING.value():
            watcher.swept(swept)

    def _total(self, arrived: list[int]) -> int:
        if len(arrived) == 1 and (self._numbers[arrived[0]].kind in (NUMBER, TOTAL)):
            return arrived[0]  # 0.0 + x is x, except for -0.0, which no x is
        data = 0.0
        for i in arrived:
            data += self._numbers[i].data
        return self._enter(TOTAL, tuple(arrived), data)

    def _weighed(self, slope: int, cotangent: int) -> int:
        factor = self._numbers[slope]
        if factor.kind == NUMBER and abs(factor.data) == 1.0:
            return cotangent if factor.data == 1.0 else self._op("neg", cotangent)
        return self._op(WEIGHED, slope, cotangent)

    # Tensors

    def tensor(self, numbers: Sequence[int]) -> Any:
        """Return numbers as a vector, an entry of the program."""
        node = _entry(NUMBERS, np.zeros(0), ())
        exports = {i: place for place, i in enumerate(dict.fromkeys(numbers))}
        self._segments.append(_Stretch(len(self._numbers), node, exports))
        array = np.array([self._numbers[i].data for i in numbers], np.float64)
        positions = Positions([exports[i] for i in numbers])
        return _entry(CHOSEN, array, (node,), positions=positions)

    def tensors(self, rows: Sequence[Sequence[int]], shape: tuple[int, ...]) -> list[Any]:
        found = self.tensor([i for row in rows for i in row]).reshape(len(rows), *shape)
        return [found[k] for k in range(len(rows))]

    def check_apart(self, nodes: Sequence[object]) -> None:
        """Raise for tensors that a program has as arrays, and that were updated by numbers."""
        for x in nodes:
            if (id(x), DATA) in self._written:
                received = "a slot of an optimizer of Values, read in the step that changes it"
                raise ConcretizationError(message("compile", received, "a read outside the step"))

    def written(self) -> Any:
        self.state.written_to = list(self._written.values())
        if not self._written:
            return None
        return self.tensor([self.index(x, name) for x, name in self.state.written_to])

    def finish(self) -> None:
        """Settle the results of each entry, once the needs of later ones are known."""
        self.state.close()
        start = self._leaf._array = np.zeros(len(self.state.read_from))
        for i, position in self._outside.items():
            start[position] = self._numbers[i].data  # the number before the recording
        self._leaf._attrs = {"state": self.state}
        needed = [self._needed(k) for k in reversed(range(len(self._segments)))]
        for k, found in enumerate(reversed(needed)):
            self._close(k, sorted(found))

    def _needed(self, k: int) -> set[int]:
        """Return an entry's numbers; those of an earlier entry become its exports."""
        first = self._segments[k - 1].stop if k else 0
        stops = [segment.stop for segment in self._segments]
        found = set(self._segments[k].exports)
        left = list(found)
        while left:
            i = left.pop()
            if i < first and self._numbers[i].kind not in (GIVEN, NUMBER):
                exports = self._segments[bisect_right(stops, i)].exports
                exports.setdefault(i, len(exports))
                continue
            for a in self._numbers[i].args:
                if a not in found:
                    found.add(a)
                    left.append(a)
        return found

    def _close(self, k: int, needed: list[int]) -> None:
        segment = self._segments[k]
        first = self._segments[k - 1].stop if k else 0
        stops = [s.stop for s in self._segments]
        inputs = {}  # the tensors read, and where each begins
        size = 0

        def begin(node: object, length: int) -> int:
            nonlocal size
            if id(node) not in inputs:
                inputs[id(node)] = node, size
                size += length
            return inputs[id(node)][1]

        slot = {i: s for s, i in enumerate(needed)}
        kinds: list[str] = []
        args: list[tuple[int, ...]] = []
        constants: dict[int, float] = {}
        for i in needed:
            kind = self._numbers[i].kind
            if kind == NUMBER:
                constants[len(kinds)] = self._numbers[i].data
                args.append(())
            elif kind == GIVEN:
                if i in self._outside:
                    at = begin(self._leaf, len(self.state.read_from)) + self._outside[i]
                else:
                    tensor, position = self._elements[i]
                    at = begin(tensor, tensor._array.size) + position
                args.append((at,))
            elif i < first:
                kind, owner = GIVEN, self._segments[bisect_right(stops, i)]
                args.append((begin(owner.node, len(owner.exports)) + owner.exports[i],))
            else:
                args.append(tuple(slot[a] for a in self._numbers[i].args))
            kinds.append(kind)
        exports = [slot[i] for i in segment.exports]
        places = [self._numbers[i].place for i in needed]
        numbers = Numbers(kinds, args, constants, exports, size, places)
        segment.node._inputs = tuple(node for node, _ in inputs.values())
        segment.node._attrs = {"numbers": numbers}
        segment.node._array = np.array([self._numbers[i].data for i in segment.exports], np.float64)


def _places(tensor: Any) -> Array:
    return np.arange(tensor._array.size).reshape(tensor._array.shape)


def _entry(op: Op, array: Array, inputs: tuple[object, ...], **attrs: object) -> Any:
    node = recorder().result(op, array, inputs, attrs)
    node._requires_grad = False
    return node


def recorder_of(capture: Any) -> NumberRecorder:
    if capture.numbers is None:
        capture.numbers = NumberRecorder(capture)
    return capture.numbers

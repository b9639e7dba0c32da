"""Single numbers that outlive a step: read anew before every run, and written after it."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from tapegraph.recording.changes import Change, make, set_array, set_changed
from tapegraph.recording.node import Node, next_seq
from tapegraph.typed import Array

# The slots of an object: the number of a Value, its gradient, or the array of a tensor.
DATA, GRAD, ARRAY = "_data", "_grad", "_array"
Item = tuple[Any, str]
# Objects with the same slot, and the places of their numbers in a vector.
Column = tuple[str, list[Any], Array]


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

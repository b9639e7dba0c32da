"""Single numbers that outlive a step: read anew before every run, and written after it."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from tapegraph.recording.node import Node, next_seq
from tapegraph.recording.values import Change, make, set_array, set_changed
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
        """End the recording of reads and writes."""
        self._read_in, self._written_in = _grouped(self.read_from), _grouped(self.written_to)

    def read(self) -> Array:
        """Return the present numbers."""
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
    slots = [slot_of(x, name) for x, name in items]
    groups = []
    for slot in dict.fromkeys(slots):
        places = [place for place, other in enumerate(slots) if other == slot]
        objects = [items[place][0] for place in places]
        groups.append((slot, objects, np.array(places, np.intp)))
    return groups


def slot_of(x: object, name: str) -> str:
    """Return the place of an object's number: a tensor has only one."""
    return ARRAY if isinstance(x, Node) else name


def number_of(x: object, name: str) -> float:
    """Return the present number of a `Value`, of its gradient, or of a tensor."""
    return x._array.item() if isinstance(x, Node) else getattr(x, name)

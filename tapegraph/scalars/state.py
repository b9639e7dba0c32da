"""Single numbers that outlive a step: read anew before every run, and written after it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.recording.node import Node, mark_changed
from tapegraph.typed import Array

DATA, GRAD = "_data", "_grad"


class State:
    """Numbers of Values, their gradients, and tensors of one number, such as Adam's means.

    Attributes
    ----------
    read_from, written_to : list of (object, str)
        What is read, and what is written: a `Value` and which of its slots, or a tensor.
    """

    def __init__(self) -> None:
        self.read_from: list[tuple[Any, str]] = []
        self.written_to: list[tuple[Any, str]] = []

    def read(self) -> Array:
        """Return the numbers as they are now."""
        return np.array([number_of(x, name) for x, name in self.read_from], np.float64)

    def write(self, numbers: Array) -> None:
        """Give everything that is written its new number."""
        for (x, name), number in zip(self.written_to, numbers.tolist(), strict=True):
            write_number(x, name, number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._keys() == other._keys()

    def __hash__(self) -> int:
        return hash(len(self.read_from))

    def __repr__(self) -> str:
        return f"{len(self.read_from)} numbers of Values"

    def _keys(self) -> list[tuple[int, str]]:
        return [(id(x), name) for x, name in (*self.read_from, *self.written_to)]


def number_of(x: Any, name: str) -> float:
    """Return the present number of a `Value`, of its gradient, or of a tensor."""
    return x._array.item() if isinstance(x, Node) else getattr(x, name)  # type: ignore[no-any-return]


def write_number(x: Any, name: str, number: float) -> None:
    """Give a `Value`, its gradient, or a tensor another number."""
    if isinstance(x, Node):
        x._array = np.array(number)
        mark_changed(x)
    else:
        setattr(x, name, number)

"""What gives the leaves of a captured program their values: in a run, and in many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tapegraph.differentiation import stored
from tapegraph.recording.node import Node
from tapegraph.typed import Array

# Gives a leaf's value in a run, from the arguments and from what every run reads anew.
Reader = Callable[[list[Any], list[Any]], Any]


class Argument:
    """An argument's array or float."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return given[self.position]


class Reading:
    """What every run reads anew, such as a learning rate or random numbers."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return read[self.position]


class GradientBefore:
    """The gradient that a leaf has when a run begins."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Node) -> None:
        self.leaf = leaf

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return stored.read(self.leaf)


class Converted:
    """What another source gives, in another dtype."""

    __slots__ = ("_dtype", "_source")

    def __init__(self, source: Reader, dtype: Any) -> None:
        self._source = source
        self._dtype = dtype

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return np.asarray(self._source(given, read), self._dtype)

    def rows(self, block: Block, read: Sequence[list[Any]], runs: int) -> Array:
        """Return what it gives in each of many runs."""
        return rows_of_runs(self._source, block, read, runs).astype(self._dtype)


class Block(Protocol):
    """The arguments of many runs."""

    def row(self, run: int) -> list[Any]:
        """Return the arrays and floats of one run."""

    def column(self, position: int, runs: int) -> Array | None:
        """Return an array argument of so many runs, a row for each; None of a float."""

    def part(self, start: int) -> Block:
        """Return the arguments of the runs from one on."""


def rows_of_runs(source: Reader, block: Block, read: Sequence[list[Any]], runs: int) -> Array:
    """Return what a source gives in each of so many runs; ``read`` is what each reading gives."""
    if isinstance(source, Converted):
        return source.rows(block, read, runs)
    if isinstance(source, Reading):
        return np.array(read[source.position])
    column = block.column(source.position, runs) if isinstance(source, Argument) else None
    if column is not None:
        return column
    return np.array([source(block.row(run), []) for run in range(runs)])  # of floats

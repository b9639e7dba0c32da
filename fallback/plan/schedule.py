"""In which order a plan makes its calls, so that values die early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tapegraph.fallback.plan.ir import Call, Held, root_ids
from tapegraph.fallback.plan.memory import LARGE

# More last readers than these are not looked at: they are seldom ready together.
FEW = 8


def by_lifetime(lines: list[Call], results: Iterable[Held]) -> list[Call]:
    """Return the calls with the last readers of a large value made as soon as they can be.

    Where they all can be, and what they give takes at most half of its memory, they are moved up:
    the mask of a relu and the gradient of the weights that it is multiplied with, say, before the
    gradient that can then lie where the relu's result did. What leaves the plan is not counted: it
    is there in the end in any order.
    """
    return _Order(lines, results).made


class _Order:
    def __init__(self, lines: list[Call], results: Iterable[Held]) -> None:
        self._lines = lines
        self._outside = root_ids(results)
        made_by = {id(held): n for n, call in enumerate(lines) for held in call.results}
        self._needs = [
            {made_by[id(held)] for held in call.reads if id(held) in made_by} for call in lines
        ]
        self._users: dict[int, list[int]] = {}  # of a line's results, by the line
        for n, needed in enumerate(self._needs):
            for other in needed:
                self._users.setdefault(other, []).append(n)
        # Of each large value that a call makes and the plan keeps: the lines that read its memory.
        self._readers: dict[int, list[int]] = {}
        self._size: dict[int, int] = {}
        for call in lines:
            for held in call.results:
                if held.roots == (held,) and id(held) not in self._outside and _size(held) >= LARGE:
                    self._size[id(held)] = _size(held)
        self._large = [[i for i in root_ids(call.reads) if i in self._size] for call in lines]
        for n, roots in enumerate(self._large):
            for root in roots:
                self._readers.setdefault(root, []).append(n)
        self._left = {root: len(readers) for root, readers in self._readers.items()}
        self._done = [False] * len(lines)
        self.made: list[Call] = []
        self._make_all()

    def _make_all(self) -> None:
        """Make the calls in order, and after each what it lets others die by."""
        # Not by recursion: a program may be long.
        pending: list[Iterator[int]] = [iter(range(len(self._lines)))]
        while pending:
            n = next(pending[-1], -1)
            if n < 0:
                pending.pop()
            elif not self._done[n]:
                self._done[n] = True
                self.made.append(self._lines[n])
                for root in self._large[n]:
                    self._left[root] -= 1
                pending.append(self._moved_up(n))

    def _moved_up(self, n: int) -> Iterator[int]:
        """Yield the lines that can be made early once a line has been."""
        for user in self._users.get(n, ()):
            if self._lines[user].kept:
                continue  # it is not moved, and may read all that there is
            for root in self._large[user]:
                if 0 < self._left[root] <= FEW:
                    left = [reader for reader in self._readers[root] if not self._done[reader]]
                    if self._may_move(left, self._size[root]):
                        yield from left

    def _may_move(self, left: list[int], size: int) -> bool:
        """Tell whether the last readers of a value can be made now, and take less than it."""
        cost = 0
        for n in left:
            call = self._lines[n]
            ready = all(self._done[other] or other in left for other in self._needs[n])
            if call.kept or not ready:
                return False
            for held in call.results:
                if held.roots == (held,) and id(held) not in self._outside:
                    cost += _size(held)
        return 2 * cost <= size


def _size(held: Held) -> int:
    return held.value.nbytes if isinstance(held.value, np.ndarray) else 0

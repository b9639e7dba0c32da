"""Finding what repeats: a loop of the user's is a stretch of parts that come again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tapegraph.drawing.sketch import Part, Sketch

# A repetition must spare so many boxes, and such a share of all. What is tried at most, for a graph
# without any: periods in parts and in work, and repetitions of what is alike.
_SPARED, _SHARE = 4, 1 / 64
_PERIODS, _WORK, _CANDIDATES = 2048, 50_000_000, 256


class Repetition(NamedTuple):
    """Parts from a start on that come several times."""

    start: int
    period: int
    times: int


def find_repetition(
    sketch: Sketch,
    parts: Sequence[Part],
    base: Callable[[int], int],
    kind: Callable[[Part], object],
) -> Repetition | None:
    """Return the repetition among parts that spares most boxes, None where there is none.

    ``base`` gives the vertex that is drawn for one; rounds of the same share their parts' ``kind``.
    """
    kinds: dict[object, int] = {}
    tokens = np.array([kinds.setdefault(kind(part), len(kinds)) for part in parts])
    wiring: _Wiring | None = None
    tried: list[tuple[int, int, int]] = []
    for _, minus, start, length in sorted(_runs(tokens), reverse=True):
        period, end = -minus, start + length
        # A shorter period has more rounds of the same, and stands before.
        if any(period % p == 0 and begin <= start and end <= stop for p, begin, stop in tried):
            continue
        wiring = wiring or _Wiring(sketch, parts, base)
        found = Repetition(wiring.start(start, length, period), period, length // period)
        if wiring.is_loop(found):
            return found
        tried.append((period, start, end))
        if len(tried) == _CANDIDATES:
            break
    return None


def _runs(tokens: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return what is spared, the period negated, start and length of each run that repeats."""
    found = []
    n = len(tokens)
    least = max(_SPARED, int(n * _SHARE))
    for period in range(1, min(n // 2, _PERIODS, _WORK // max(n, 1)) + 1):
        same = tokens[:-period] == tokens[period:]
        ends = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        starts, lengths = ends[::2], ends[1::2] - ends[::2] + period
        spared = (lengths // period - 1) * period
        for i in np.flatnonzero(spared >= least).tolist():  # two rounds at least
            found.append((int(spared[i]), -period, int(starts[i]), int(lengths[i])))
    return found


class _Wiring:
    """Which parts read which, by their places; -1 is elsewhere."""

    def __init__(self, sketch: Sketch, parts: Sequence[Part], base: Callable[[int], int]) -> None:
        place = {i: n for n, part in enumerate(parts) for i in part.all_members()}
        drawn = [place.get(base(i), -1) for i in range(len(sketch))]
        vertices = sketch.vertices
        self.reads = [
            sorted({drawn[x] for i in part.all_members() for x in vertices[i].inputs})
            for part in parts
        ]
        self.read_by: list[set[int]] = [set() for _ in parts]
        for reader, vertex in enumerate(vertices):
            for x in vertex.inputs:
                if drawn[x] >= 0:
                    self.read_by[drawn[x]].add(drawn[reader])

    def start(self, start: int, length: int, period: int) -> int:
        """Return where the rounds of a run begin: where the fewest results go on to the next."""

        def handed_on(first: int) -> int:
            cut = first + period
            return sum(any(r >= cut for r in self.read_by[n]) for n in range(first, cut))

        return min(range(start, start + length % period + 1), key=handed_on)

    def is_loop(self, found: Repetition) -> bool:
        """Return whether the rounds are wired alike, and in a row or else side by side."""
        rounds = [found.start + n * found.period for n in range(found.times)]
        inside = {self._offsets(begin, found.period, 0) for begin in rounds}
        before = {self._offsets(begin, found.period, -found.period) for begin in rounds[1:]}
        if len(inside) > 1 or len(before) > 1:
            return False
        in_a_row = any(before.pop())
        return in_a_row or self._are_read_alike(found)

    def _offsets(self, begin: int, period: int, low: int) -> tuple[tuple[int, ...], ...]:
        """Return which parts each of a round reads, of a stretch of one period from low on."""
        return tuple(
            tuple(x - begin for x in self.reads[n] if low <= x - begin < low + period)
            for n in range(begin, begin + period)
        )

    def _are_read_alike(self, found: Repetition) -> bool:
        """Return whether what comes after reads the same of every round."""
        start, period, times = found
        rounds = range(start, start + period * times)
        for offset in range(period):
            places = rounds[offset::period]
            readers = {frozenset(r for r in self.read_by[n] if r not in rounds) for n in places}
            if len(readers) > 1:
                return False
        return True

"""Layered layout: boxes on ranks, each below what it reads, with few crossings and straight edges.

The steps are those of Sugiyama, Tagawa and Toda (1981). Where each box stands on its rank is found
by least squares: it is drawn to its neighbours, and pooling adjacent violators keeps boxes apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

# Wider than any picture: what tells apart edges of one box, and not boxes.
_FAR = 1e5
# Between boxes of a rank, between ranks, between edges that pass each other.
GAP, RANK_GAP, LANE = 18.0, 18.0, 10.0
_SWEEPS = 8
# How straight the inner pieces of a long edge want to be, and what only a leaf is read by.
_STRAIGHT, _TO_LEAF = 4.0, 0.3


class Point(NamedTuple):
    """A place in a picture; y grows downwards."""

    x: float
    y: float


class Link(NamedTuple):
    """An edge to be laid out: between two boxes, and where on them, from their left sides."""

    tail: int
    head: int
    leaves: float | None = None  # where any place does
    enters: float | None = None


class Arranged(NamedTuple):
    """Where boxes stand, by their left upper corners, and the points that each edge goes through.

    Points come in pairs: inside one an edge goes straight down, from one to the next it is a curve.
    """

    corners: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


class _Near(NamedTuple):
    """A neighbour: where an edge ends here and there, off the middles, and how straight it is."""

    cell: _Cell
    here: float
    there: float
    weight: float


class _Cell:
    """A box on its rank, or the lane of an edge that passes by."""

    __slots__ = ("above", "below", "bottom", "height", "is_lane", "top", "width", "x", "y")

    def __init__(self, width: float, height: float, is_lane: bool) -> None:
        self.width = width
        self.height = height
        self.is_lane = is_lane
        self.x = 0.0  # of the middle
        self.y = 0.0  # of the upper side
        self.top = self.bottom = 0.0  # of the rank
        self.above: list[_Near] = []
        self.below: list[_Near] = []


def arrange(
    sizes: Sequence[tuple[float, float]],
    links: Sequence[Link],
    first: Iterable[int] = (),
    last: Iterable[int] = (),
) -> Arranged:
    """Lay out boxes of some widths and heights; some are to stand on the first or last rank."""
    ranks = _ranks(len(sizes), links, set(first), last)
    rows: list[list[_Cell]] = [[] for _ in range(max(ranks, default=0) + 1)]
    cells = [_Cell(w, h, False) for w, h in sizes]
    for cell, rank in zip(cells, ranks, strict=True):
        rows[rank].append(cell)
    several = Counter(link.head for link in links)
    paths = []
    for link in links:
        is_leaf = link.tail not in several and several[link.head] > 1
        paths.append(_path(link, cells, ranks, rows, is_leaf))
    _order(rows)
    _place(rows)
    return _measured(rows, cells, links, paths)


def _ranks(count: int, links: Sequence[Link], on_top: set[int], last: Iterable[int]) -> list[int]:
    """Return on which rank each box stands: under all it reads, and leaves close to a reader."""
    heads: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for tail, head, *_ in links:
        heads[tail].append(head)
        waits[head] += 1
    ready = [i for i in range(count) if not waits[i]]
    sources = set(ready)
    ranks = [0] * count
    for i in ready:  # grows while it is walked
        for j in heads[i]:
            ranks[j] = max(ranks[j], ranks[i] + 1)
            waits[j] -= 1
            if not waits[j]:
                ready.append(j)
    for i in sources - on_top:
        if heads[i]:
            ranks[i] = min(ranks[j] for j in heads[i]) - 1
    end = max(ranks, default=0)
    for i in last:
        ranks[i] = end
    return ranks


def _path(
    link: Link, cells: list[_Cell], ranks: list[int], rows: list[list[_Cell]], is_leaf: bool
) -> list[_Cell]:
    """Give an edge a lane on each rank that it passes, and make the neighbours known."""
    tail, head = cells[link.tail], cells[link.head]
    path = [tail]
    for rank in range(ranks[link.tail] + 1, ranks[link.head]):
        lane = _Cell(LANE, 0.0, True)
        rows[rank].append(lane)
        path.append(lane)
    path.append(head)
    for above, below in zip(path, path[1:], strict=False):
        here = _off(above, link.leaves if above is tail else None)
        there = _off(below, link.enters if below is head else None)
        if above.is_lane and below.is_lane:
            weight = _STRAIGHT
        else:
            weight = _TO_LEAF if is_leaf else 1.0
        above.below.append(_Near(below, here, there, weight))
        below.above.append(_Near(above, there, here, weight))
    return path


def _off(cell: _Cell, place: float | None) -> float:
    """Return how far a place lies off a box's middle: anywhere is there."""
    return 0.0 if place is None else place - cell.width / 2


# The order on each rank


def _order(rows: list[list[_Cell]]) -> None:
    """Sort each rank by the middle of what it is linked to, down and up, and keep the best."""
    best, fewest = [row[:] for row in rows], _crossings(rows)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        for row in rows[1:] if down else rows[-2::-1]:
            _sort(row, _places(rows), down)
        now = _crossings(rows)
        if now < fewest:
            best, fewest = [row[:] for row in rows], now
    rows[:] = best


def _sort(row: list[_Cell], places: dict[_Cell, float], down: bool) -> None:
    def middle(cell: _Cell) -> float:
        near = cell.above if down else cell.below
        ends = [places[n.cell] + n.there / _FAR for n in near]
        return sum(ends) / len(ends) if ends else places[cell]

    row.sort(key=middle)


def _places(rows: list[list[_Cell]]) -> dict[_Cell, float]:
    """Return where each cell stands on its rank, from 0 to 1."""
    return {cell: (n + 0.5) / len(row) for row in rows for n, cell in enumerate(row)}


def _crossings(rows: list[list[_Cell]]) -> int:
    """Count how often edges cross between ranks."""
    total = 0
    for upper, lower in zip(rows, rows[1:], strict=False):
        place = {cell: n for n, cell in enumerate(lower)}
        ends = sorted(
            (n + near.here / _FAR, place[near.cell] + near.there / _FAR)
            for n, cell in enumerate(upper)
            for near in cell.below
        )
        seen: list[float] = []  # sorted
        for _, head in ends:
            at = bisect_right(seen, head)
            total += len(seen) - at
            seen.insert(at, head)
    return total


# The place on each rank


def _place(rows: list[list[_Cell]]) -> None:
    """Draw each cell to its neighbours, above and below in turn, and keep boxes apart."""
    for row in rows:
        _settle(row, [0.0] * len(row), [1.0] * len(row))
    for sweep in range(3 * _SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _draw(row, (lambda c: c.above or c.below) if down else (lambda c: c.below or c.above))
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            _draw(row, lambda c: c.above + c.below)


def _draw(row: list[_Cell], near: Callable[[_Cell], list[_Near]]) -> None:
    wishes, weights = [], []
    for cell in row:
        neighbours = near(cell)
        total = sum(n.weight for n in neighbours)
        wish = sum((n.cell.x + n.there - n.here) * n.weight for n in neighbours)
        wishes.append(wish / total if total else cell.x)
        weights.append(total or 0.1)
    _settle(row, wishes, weights)


def _settle(row: list[_Cell], wishes: list[float], weights: list[float]) -> None:
    """Place the cells of a rank as close to their wishes as they fit, in the sense of squares."""
    offsets = [0.0]
    for one, other in zip(row, row[1:], strict=False):
        gap = LANE if one.is_lane or other.is_lane else GAP
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + gap)
    blocks: list[list[float]] = []  # mean, weight, count: pooled while they would overlap
    for wish, weight, offset in zip(wishes, weights, offsets, strict=False):
        blocks.append([wish - offset, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, total, count = blocks.pop()
            last = blocks[-1]
            last[0] = (last[0] * last[1] + mean * total) / (last[1] + total)
            last[1] += total
            last[2] += count
    means = [mean for mean, _, count in blocks for _ in range(int(count))]
    for cell, mean, offset in zip(row, means, offsets, strict=False):
        cell.x = mean + offset


# The picture


def _measured(
    rows: list[list[_Cell]], cells: list[_Cell], links: Sequence[Link], paths: list[list[_Cell]]
) -> Arranged:
    """Return where everything is, from 0 on."""
    left = min((c.x - c.width / 2 for row in rows for c in row), default=0.0)
    right = max((c.x + c.width / 2 for row in rows for c in row), default=0.0)
    y = 0.0
    for number, row in enumerate(rows):
        # Where an edge goes far to the side it needs room to do so.
        aside = (n.cell.x + n.there - n.here - c.x for c in row for n in c.above)
        far = max(map(abs, aside), default=0.0)
        if number:
            y += RANK_GAP + min(far / 14, 24.0)
        high = max((c.height for c in row), default=0.0)
        for c in row:
            c.top, c.bottom, c.y = y, y + high, y + (high - c.height) / 2
        y += high
    corners = [Point(c.x - c.width / 2 - left, c.y) for c in cells]
    routes = []
    for link, path, enters in zip(links, paths, _entries(links, paths), strict=True):
        tail, head = path[0], path[-1]
        start = tail.x + _off(tail, link.leaves)
        # What has no height is where an edge comes in or goes out: at the edge of its rank.
        begin = tail.y + tail.height if tail.height else tail.top
        end = head.y if head.height else head.bottom
        points = [Point(start, begin), Point(start, tail.bottom)]
        for lane in path[1:-1]:
            points += [Point(lane.x, lane.top), Point(lane.x, lane.bottom)]
        points += [Point(enters, head.top), Point(enters, end)]
        routes.append([Point(p.x - left, p.y) for p in points])
    return Arranged(corners, routes, right - left, y)


def _entries(links: Sequence[Link], paths: list[list[_Cell]]) -> list[float]:
    """Return where each edge enters its box: in the order in which they come, apart."""
    found = []
    free: dict[_Cell, list[int]] = {}
    for n, (link, path) in enumerate(zip(links, paths, strict=True)):
        found.append(path[-1].x + _off(path[-1], link.enters))
        if link.enters is None:
            free.setdefault(path[-1], []).append(n)
    for head, numbers in free.items():
        numbers.sort(key=lambda n: paths[n][-2].x)
        step = min(16.0, (head.width - 16.0) / len(numbers))
        for place, n in enumerate(numbers):
            found[n] = head.x + (place - (len(numbers) - 1) / 2) * step
    return found

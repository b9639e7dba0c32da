"""Layered layout: boxes on ranks below what they read, with few crossings and straight edges.

The steps are those of Sugiyama, Tagawa and Toda (1981). Least squares place the boxes of a rank;
pooling adjacent violators keeps them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from statistics import fmean
from typing import TypeAlias

from tapegraph.drawing.folding import Folding, Part
from tapegraph.drawing.labels import Labels
from tapegraph.drawing.scene import HEAD, MARGIN, TITLE, Box, Edge, Frame, Point, Scene
from tapegraph.drawing.sketch import Sketch

# Between boxes of a rank, between ranks, between edges that pass each other, and between lines that
# lead back to the next round.
_GAP, _RANK_GAP, _LANE, _BESIDE = 18.0, 18.0, 10.0, 8.0
_SWEEPS = 8
# All sweeps together look at so many cells at most, but there are two sweeps. A picture of more
# lanes is folded further: nobody could follow its edges.
_LOOKS, _MOST_LANES = 200_000, 40_000
_FEWEST = 24  # boxes, which any picture may have

Ends: TypeAlias = tuple[Part, Part]  # the boxes that an edge leads from and to


class _Cell:
    """A box on its rank, or the lane of an edge that passes by."""

    __slots__ = ("above", "below", "bottom", "box", "top", "width", "x")

    def __init__(self, box: Box | None = None) -> None:
        self.box = box
        self.width = box.width if box else _LANE
        self.x = 0.0  # of the middle
        self.top = self.bottom = 0.0  # of the rank
        self.above: list[_Cell] = []
        self.below: list[_Cell] = []


def lay_out(sketch: Sketch, most: int) -> tuple[Folding, Scene]:
    """Return a sketch folded to about ``most`` boxes, fewer for long edges, and its picture."""
    while True:
        folding = Folding(sketch, most)
        layout = _Layout(folding)
        lanes = layout.lanes
        if lanes <= _MOST_LANES or most <= _FEWEST:
            return folding, layout.scene()
        boxes = min(most, len(folding.root.boxes()))  # lanes grow as the square of boxes
        most = max(_FEWEST, int(0.9 * boxes * (_MOST_LANES / lanes) ** 0.5))


class _Layout:
    def __init__(self, folding: Folding) -> None:
        self._folding = folding
        self._labels = Labels(folding)
        self._edges: dict[Ends, str] = {}  # with their labels
        self._again: dict[Ends, Part] = {}  # to the next round, with the frame that repeats
        self._boxes = {part: self._box(part) for part in folding.root.boxes()}
        self._cells = {part: _Cell(box) for part, box in self._boxes.items()}
        self._reads: dict[Part, list[Part]] = {part: [] for part in self._cells}
        self._ranks: dict[Part, int] = {}
        self._link()
        count = self._rank(folding.root.parts, 0)
        self._rows: list[list[_Cell]] = [[] for _ in range(count)]

    @property
    def lanes(self) -> int:
        return sum(self._ranks[head] - self._ranks[tail] - 1 for tail, head in self._edges)

    def scene(self) -> Scene:
        for part, cell in self._cells.items():
            self._rows[self._ranks[part]].append(cell)
        paths = {ends: self._path(*ends) for ends in self._edges}
        _order(self._rows)
        _place(self._rows)
        scene = Scene(*self._labels.header(), [*self._boxes.values()])
        self._stack(scene.top)
        scene.frames = self._frames()
        self._centre(scene)
        scene.edges = [*self._edges_down(paths), *self._edges_again(scene.frames)]
        return scene

    def _box(self, part: Part) -> Box:
        vertices = [self._folding.sketch.vertices[i] for i in part.members]
        kind: str = vertices[-1].kind
        if part.title and kind != "gradient":
            kind = "function"
        kind = {"state": "param", "number": "constant"}.get(kind, kind)
        alike = (j for i in part.members for j in self._folding.alike[i])
        is_result = any(self._folding.sketch.vertices[j].is_result for j in alike)
        return Box(part, kind, self._labels.lines(part), self._labels.details(part), is_result)

    # Links between cells, by rank

    def _link(self) -> None:
        around, base = self._folding.root.around(), self._folding.base
        order = {i: n for n, i in enumerate(self._folding.root.all_members())}
        box_of = {i: part for part in self._cells for i in part.members}
        for i, vertex in enumerate(self._folding.sketch.vertices):
            mine = box_of.get(base[i])
            if mine is None:
                continue
            places = self._labels.places(i) if len(mine.members) == 1 and mine.times == 1 else {}
            for x in vertex.inputs:
                theirs = box_of.get(base[x])
                if theirs is None:
                    continue
                if order[base[x]] >= order[base[i]]:
                    frame = [f for f in around[mine] if f in around[theirs]][-1]
                    if frame.times > 1 and (theirs is not mine or mine.times == 1):
                        self._again[theirs, mine] = frame
                elif theirs is not mine:
                    self._edges[theirs, mine] = places.get(x, "")
        for tail, head in self._edges:
            self._reads[head].append(tail)

    def _rank(self, parts: list[Part], first: int) -> int:
        """Give boxes ranks below all that they read; return the next rank."""
        for is_frame, run in groupby(parts, lambda part: part.is_frame):
            if is_frame:
                for frame in run:
                    first = self._rank(frame.parts, first)
                continue
            boxes = list(run)
            for box in boxes:
                self._ranks[box] = max([first, *(self._ranks[x] + 1 for x in self._reads[box])])
            last = max(self._ranks[box] for box in boxes)
            for box in boxes:
                if not self._reads[box]:
                    near = (self._ranks[x] - 1 for x in boxes if box in self._reads[x])
                    self._ranks[box] = min(near, default=last)
            first = last + 1
        return first

    def _path(self, tail: Part, head: Part) -> list[_Cell]:
        """Give an edge a lane on each rank that it passes, and link the neighbours."""
        path = [self._cells[tail]]
        for row in self._rows[self._ranks[tail] + 1 : self._ranks[head]]:
            row.append(_Cell())
            path.append(row[-1])
        path.append(self._cells[head])
        for above, below in pairwise(path):
            above.below.append(below)
            below.above.append(above)
        return path

    # Where everything is

    def _stack(self, y: float) -> None:
        """Stack the ranks, with room for the frames that begin and end there."""
        held = [[self._ranks[box] for box in f.boxes()] for f in self._folding.root.frames()[1:]]
        begin, end = Counter(map(min, held)), Counter(map(max, held))
        for n, row in enumerate(self._rows):
            # Where an edge goes far to the side it needs room to do so.
            aside = max((abs(cell.x - near.x) for cell in row for near in cell.above), default=0.0)
            y += begin[n] * TITLE + (_RANK_GAP + min(aside / 14, 24.0) if n else 0.0)
            height = max(cell.box.height for cell in row if cell.box)
            for cell in row:
                cell.top, cell.bottom = y, y + height
                if cell.box:
                    cell.box.x = cell.x - cell.width / 2
                    cell.box.y = y + (height - cell.box.height) / 2
            y += height + end[n] * MARGIN

    def _frames(self) -> list[Frame]:
        found: list[Frame] = []
        for part in reversed(self._folding.root.frames()[1:]):
            ranks = [self._ranks[box] for box in part.boxes()]
            rows = self._rows[min(ranks) : max(ranks) + 1]
            inside = [frame for frame in found if frame.part in part.parts]
            left, right = _sides(rows, inside)
            top = min([rows[0][0].top, *(frame.y for frame in inside)]) - TITLE
            bottom = max([rows[-1][0].bottom, *(f.y + f.height for f in inside)]) + MARGIN
            lines = len({tail for (tail, _), frame in self._again.items() if frame is part})
            width = right - left + 2 * MARGIN + _BESIDE * lines
            found.append(Frame(part, left - MARGIN, top, width, bottom - top))
        return found[::-1]

    def _centre(self, scene: Scene) -> None:
        left, right = _sides(self._rows, scene.frames)
        width = max(right - left, scene.header_width)
        by = MARGIN + (width - (right - left)) / 2 - left
        shapes: list[Box | Frame] = [*scene.boxes, *scene.frames]
        for shape in shapes:
            shape.x += by
        for cell in chain(*self._rows):
            cell.x += by
        scene.width = width + 2 * MARGIN
        scene.height = max((s.y + s.height for s in shapes), default=scene.top) + MARGIN

    def _edges_down(self, paths: dict[Ends, list[_Cell]]) -> Iterator[Edge]:
        """Yield the edges: straight beside the boxes of a rank, and curved between ranks."""
        entries = _entries(paths)
        for ends, path in paths.items():
            tail, *lanes, head = path
            source, sink, enters = self._boxes[ends[0]], self._boxes[ends[1]], entries[ends]
            points = [Point(tail.x, source.y + source.height), Point(tail.x, tail.bottom)]
            for lane in lanes:
                points += [Point(lane.x, lane.top), Point(lane.x, lane.bottom)]
            points += [Point(enters, head.top - HEAD), Point(enters, sink.y)]
            yield Edge(ends, points, self._edges[ends])

    def _edges_again(self, frames: list[Frame]) -> Iterator[Edge]:
        """Yield the edges to the next round, which go up at the right side of a frame."""
        for frame in frames:
            edges = [ends for ends, part in self._again.items() if part is frame.part]
            tails = list(dict.fromkeys(tail for tail, _ in edges))
            for tail, head in edges:
                source, sink = self._boxes[tail], self._boxes[head]
                start, end = source.x + source.width - 8.0, sink.x + sink.width - 8.0
                side = frame.x + frame.width - _BESIDE * (1 + tails.index(tail))
                low, high = self._cells[tail].bottom + 6.0, self._cells[head].top - 10.0
                points = [(start, source.y + source.height), (start, low), (side, low)]
                points += [(side, high), (end, high), (end, sink.y)]
                yield Edge((tail, head), [Point(*p) for p in points], again=True)


def _sides(rows: list[list[_Cell]], frames: list[Frame]) -> tuple[float, float]:
    cells = list(chain(*rows))
    left = min([c.x - c.width / 2 for c in cells] + [f.x for f in frames], default=0.0)
    right = [c.x + c.width / 2 for c in cells] + [f.x + f.width for f in frames]
    return left, max(right, default=0.0)


def _sweeps(rows: list[list[_Cell]], most: int) -> int:
    return max(2, min(most, _LOOKS // max(1, sum(map(len, rows)))))


# The order on each rank


def _order(rows: list[list[_Cell]]) -> None:
    for sweep in range(_sweeps(rows, _SWEEPS)):
        down = sweep % 2 == 0
        for beside, row in pairwise(rows if down else rows[::-1]):
            place = {cell: (n + 0.5) / len(r) for r in (row, beside) for n, cell in enumerate(r)}
            ends = {cell: (cell.above if down else cell.below) or [cell] for cell in row}
            middles = {cell: fmean(map(place.__getitem__, ends[cell])) for cell in row}
            row.sort(key=middles.__getitem__)


# The place on each rank


def _place(rows: list[list[_Cell]]) -> None:
    """Move each cell to the middle of its neighbours, and keep boxes apart."""
    for row in rows:
        _settle(row, [0.0] * len(row))
    for sweep in range(_sweeps(rows, 4 * _SWEEPS)):
        for row in reversed(rows) if sweep % 2 else rows:
            _settle(row, [fmean(near.x for near in c.above + c.below or [c]) for c in row])


def _settle(row: list[_Cell], wishes: list[float]) -> None:
    """Place a rank's cells as close to their wishes as they fit, by least squares."""
    offsets = [0.0]
    for one, other in pairwise(row):
        gap = _GAP if one.box and other.box else _LANE
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + gap)
    blocks: list[tuple[float, int]] = []  # mean and count: pooled while they would overlap
    for wish, offset in zip(wishes, offsets, strict=True):
        mean, count = wish - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, more = blocks.pop()
            mean, count = (mean * count + before * more) / (count + more), count + more
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    for cell, mean, offset in zip(row, means, offsets, strict=True):
        cell.x = mean + offset


def _entries(paths: dict[Ends, list[_Cell]]) -> dict[Ends, float]:
    coming: dict[_Cell, list[Ends]] = {}
    for ends, path in paths.items():
        coming.setdefault(path[-1], []).append(ends)
    found = {}
    for head, edges in coming.items():
        edges.sort(key=lambda ends: paths[ends][-2].x)
        step = min(16.0, (head.width - 16.0) / len(edges))
        for n, ends in enumerate(edges):
            found[ends] = head.x + (n - (len(edges) - 1) / 2) * step
    return found

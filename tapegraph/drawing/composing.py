"""From parts to a scene: each frame is laid out by itself, and is one box for the one around it."""

from __future__ import annotations

import math
from typing import NamedTuple

from tapegraph.drawing.labels import CHARACTER, SIZES, Labels, columns, short
from tapegraph.drawing.layered import Link, Point, arrange
from tapegraph.drawing.scene import (
    FACT_SIZE,
    HEADER_SIZE,
    KEY,
    LINE,
    MARGIN,
    PAD_X,
    PAD_Y,
    TITLE,
    TITLE_SIZE,
    Box,
    Edge,
    Frame,
    Scene,
    key_width,
)
from tapegraph.drawing.sketch import Folded, Part

# A line above the picture, in characters.
_LONGEST = 90


def compose(folded: Folded) -> Scene:
    """Return the picture of a folded sketch."""
    return _Composer(folded).compose()


# What the end of an edge is inside a frame: a part ("part"), or where it comes "in" or goes "out",
# by the box that it begins at.
_End = tuple[str, Part]


class _Piece(NamedTuple):
    """A piece of an edge inside a frame, and the box where the edge begins."""

    tail: _End
    head: _End
    source: Part


class _Block(NamedTuple):
    """What a frame holds, laid out from 0 on, and where edges come in and go out, by their box."""

    scene: Scene
    enters: dict[Part, float]
    leaves: dict[Part, float]


class _Composer:
    def __init__(self, folded: Folded) -> None:
        self._folded = folded
        self._labels = Labels(folded)
        self._vertices = folded.sketch.vertices
        self._path = {path[-1]: path for path in folded.root.paths()}  # from the root to each box
        self._links: dict[Part, dict[_Piece, str]] = {}
        self._again: dict[Part, dict[tuple[Part, Part], Part]] = {}
        self._kinds: set[str] = set()

    def compose(self) -> Scene:
        self._find_links()
        scene = self._block(self._folded.root).scene
        scene.title = short(self._folded.sketch.title, _LONGEST)
        scene.facts = [short(fact, _LONGEST) for fact in self._facts()]
        scene.kinds = [kind for kind in KEY if kind in self._kinds]
        top = MARGIN + HEADER_SIZE * 1.5 + len(scene.facts) * FACT_SIZE * 1.45
        scene.key = top + FACT_SIZE
        top += FACT_SIZE * 2 + MARGIN
        texts = [columns(scene.title) * HEADER_SIZE, *(columns(f) * FACT_SIZE for f in scene.facts)]
        width = max(scene.width, max(texts) * CHARACTER, sum(map(key_width, scene.kinds)))
        scene.shift(Point(MARGIN + (width - scene.width) / 2, top))
        scene.width = width + 2 * MARGIN
        scene.height += top + MARGIN
        return scene

    def _facts(self) -> list[str]:
        """Return what is said of all of it."""
        sketch = self._folded.sketch
        trained = [v for v in self._vertices if v.kind == "param"]
        what = "Value" if sketch.of_numbers else "parameter"
        counted = f"{_many(len(sketch.operations()), 'operation')}, {_many(len(trained), what)}"
        if trained and not sketch.of_numbers:
            counted += f" of {_many(sum(math.prod(v.shape or ()) for v in trained), 'number')}"
        if self._labels.dtype:
            counted += f", {self._labels.dtype}"
        return [*sketch.facts, counted]

    # Who is linked to whom

    def _find_links(self) -> None:
        box, base = self._folded.root.box_of(), self._folded.base
        order = {part: n for n, part in enumerate(self._folded.root.boxes())}
        for i, vertex in enumerate(self._vertices):
            mine = box.get(base[i])
            if mine is None:
                continue
            inputs = vertex.inputs
            if vertex.kind == "gradient":
                inputs = (inputs[0], *inputs[2:])
            labels = self._labels.places(i) if len(mine.members) == 1 and mine.times == 1 else {}
            for n, x in enumerate(inputs):
                theirs = box.get(base[x])
                if theirs is None or theirs is mine:
                    continue
                if order[theirs] < order[mine]:
                    self._link(theirs, mine, labels.get(x, ""))
                elif base[i] != i:
                    first = box.get(base[self._vertices[base[i]].inputs[n]])
                    if first is not None:
                        self._link_again(theirs, mine, first)

    def _link(self, tail: Part, head: Part, label: str) -> None:
        """Lead an edge out of the frames around its tail and into those around its head."""
        out, into = self._path[tail], self._path[head]
        common = _common(out, into)
        self._lead_out(tail, out[common:])
        across = _Piece(("part", out[common]), ("part", into[common]), tail)
        self._in(out[common - 1])[across] = label
        for frame, part in zip(into[common:], into[common + 1 :], strict=False):
            self._in(frame)[_Piece(("in", tail), ("part", part), tail)] = label

    def _lead_out(self, tail: Part, path: list[Part]) -> None:
        for frame, part in zip(path, path[1:], strict=False):
            self._in(frame)[_Piece(("part", part), ("out", tail), tail)] = ""

    def _link_again(self, tail: Part, head: Part, first: Part) -> None:
        """Lead what the next round reads to where it comes in."""
        out = self._path[tail]
        common = _common(out, self._path[head])
        frame = out[common - 1]
        if frame.times < 2 or frame in self._path[first]:
            return
        self._again.setdefault(frame, {}).setdefault((tail, first), head)
        self._lead_out(tail, out[common - 1 :])

    def _in(self, frame: Part) -> dict[_Piece, str]:
        return self._links.setdefault(frame, {})

    # Layout

    def _box(self, part: Part) -> Box:
        lines = self._labels.lines(part)
        vertex = self._vertices[part.members[-1]]
        width = max(line.width for line in lines) + 2 * PAD_X
        height = sum(SIZES[line.role] * LINE for line in lines) + 2 * PAD_Y
        kind: str = {"state": "param", "number": "constant"}.get(vertex.kind, vertex.kind)
        if part.title and kind != "gradient":
            kind = "function"
        is_result = any(self._vertices[i].is_result for i in part.members)
        self._kinds |= {kind, "result"} if is_result else {kind}
        details = self._labels.details(part)
        return Box(part, kind, lines, max(width, 44.0), height, is_result, details)

    def _block(self, frame: Part) -> _Block:
        """Lay out what a frame holds."""
        blocks = {part: self._block(part) for part in frame.parts if part.is_frame}
        links = self._in(frame)
        shapes: dict[_End, Box | Frame | None] = {}
        for part in frame.parts:
            if part.is_frame:
                inside = blocks[part].scene
                shapes["part", part] = Frame(part, inside.width, inside.height)
            else:
                shapes["part", part] = self._box(part)
        for piece in links:  # where edges come in and go out is a place without height
            shapes.setdefault(piece.tail, None)
            shapes.setdefault(piece.head, None)
        number = {end: n for n, end in enumerate(shapes)}
        sizes = [(2.0, 0.0) if s is None else (s.width, s.height) for s in shapes.values()]
        arranged = arrange(
            sizes,
            [_numbered(piece, number, blocks) for piece in links],
            [n for (kind, _), n in number.items() if kind == "in"],
            [n for (kind, _), n in number.items() if kind == "out"],
        )
        scene = Scene("", [], arranged.width, arranged.height)
        block = _Block(scene, {}, {})
        places = {"in": block.enters, "out": block.leaves}
        for ((kind, part), shape), corner, (width, _) in zip(
            shapes.items(), arranged.corners, sizes, strict=True
        ):
            if shape is None:
                places[kind][part] = corner.x + width / 2
                continue
            shape.corner = corner
            if isinstance(shape, Box):
                scene.boxes.append(shape)
            else:
                inside = blocks[part].scene
                inside.shift(corner)
                scene.frames += [shape, *inside.frames]
                scene.boxes += inside.boxes
                scene.edges += inside.edges
        for (piece, label), route in zip(links.items(), arranged.routes, strict=True):
            kind, part = piece.head
            if kind == "part" and not part.is_frame:  # there the edge ends
                scene.edges.append(Edge(route, label=label, ends=(piece.source, part)))
            else:
                scene.edges.append(Edge(route, has_head=False))
        if frame is not self._folded.root:
            self._add_margin(frame, block)
        return block

    def _add_margin(self, frame: Part, block: _Block) -> None:
        """Make room for a frame's title and border, and lead edges through it."""
        scene, enters, leaves = block
        again = sorted(
            (
                (leaves[tail], enters[first], (tail, head))
                for (tail, first), head in self._again.get(frame, {}).items()
                if tail in leaves and first in enters
            ),
            key=lambda found: found[:2],
        )
        side = MARGIN + 8.0 * len(again)
        title = columns(frame.heading) * TITLE_SIZE * CHARACTER + 2 * MARGIN
        wide = max(scene.width + MARGIN + side, title)
        shift = Point(MARGIN + max(0.0, (wide - scene.width - MARGIN - side) / 2), TITLE + 6.0)
        scene.shift(shift)
        scene.width = wide
        bottom = shift.y + scene.height
        scene.height = bottom + MARGIN - 4.0
        for places, start, end in ((enters, 0.0, shift.y), (leaves, bottom, scene.height)):
            for source in places:
                places[source] += shift.x
                x = places[source]
                scene.edges.append(Edge([Point(x, start), Point(x, end)], has_head=False))
        for n, (x, back, ends) in enumerate(again):
            right = scene.width - 8.0 - 8.0 * n
            low, high = scene.height - 5.0, 5.0 + TITLE
            points = [
                Point(x + shift.x, low),
                Point(right, low),
                Point(right, high),
                Point(back + shift.x, high),
            ]
            scene.edges.append(Edge(points, again=True, ends=ends))


def _common(path: list[Part], other: list[Part]) -> int:
    """Return how many parts two ways from the root have in common."""
    return sum(a is b for a, b in zip(path, other, strict=False))


def _numbered(piece: _Piece, number: dict[_End, int], blocks: dict[Part, _Block]) -> Link:
    """Return a piece of an edge by the numbers of its ends, and where on frames they are."""
    tail, head, source = piece
    leaves = blocks[tail[1]].leaves.get(source) if tail[1] in blocks else None
    enters = blocks[head[1]].enters.get(source) if head[1] in blocks else None
    return Link(number[tail], number[head], leaves, enters)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

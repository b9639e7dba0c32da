"""From parts to a scene: each frame is laid out by itself, and is one box for the one around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tapegraph.drawing.labels import CHARACTER, SIZES, Labels, columns, printable
from tapegraph.drawing.layered import Link, Point, arrange
from tapegraph.drawing.parts import Folded, Part
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
)
from tapegraph.drawing.sketch import CONSTANT, DERIVATIVE, NUMBER, PARAMETER, STATE

# A line above the picture, in characters.
_LONGEST = 90


def compose(folded: Folded) -> Scene:
    """Return the picture of a folded sketch."""
    return _Composer(folded).compose()


# What the end of an edge is inside a frame: a part, or where it comes in or goes out, by the box
# that it begins at.
_End = tuple[str, Part]


@dataclass
class _Block:
    """What a frame holds, laid out from 0 on, and where edges come in and go out, by their box."""

    scene: Scene
    enters: dict[int, float]
    leaves: dict[int, float]


# A piece of an edge, from end to end, and the box where it begins if that may lie deeper inside.
_Piece = tuple[Any, ...]


class _Composer:
    def __init__(self, folded: Folded) -> None:
        self._folded = folded
        self._labels = Labels(folded)
        self._vertices = folded.sketch.vertices
        self._path: dict[int, list[Part]] = {}  # from the root to each part
        self._links: dict[int, dict[_Piece, str]] = {}
        self._again: dict[int, dict[tuple[Part, Part], Part]] = {}
        self._kinds: dict[str, None] = {}

    def compose(self) -> Scene:
        self._find_paths(self._folded.root, [])
        self._find_links()
        scene = self._block(self._folded.root).scene
        sketch = self._folded.sketch
        scene.title = _line(sketch.title)
        scene.facts = self.facts()
        scene.kinds = [k for k in KEY if k in self._kinds]
        top = MARGIN + HEADER_SIZE * 1.5 + len(scene.facts) * FACT_SIZE * 1.45
        scene.key = top + FACT_SIZE
        top += FACT_SIZE * 2 + MARGIN
        texts = [columns(scene.title) * HEADER_SIZE, *(columns(f) * FACT_SIZE for f in scene.facts)]
        key = sum(columns(KEY[k]) * FACT_SIZE * CHARACTER + 34 for k in scene.kinds)
        width = max(scene.width, max(texts) * CHARACTER, key)
        scene.shift(Point(MARGIN + (width - scene.width) / 2, top))
        scene.width = width + 2 * MARGIN
        scene.height += top + MARGIN
        return scene

    def facts(self) -> list[str]:
        """Return what is said of all of it."""
        sketch = self._folded.sketch
        operations = sum(not v.is_leaf for v in self._vertices)
        trained = [v for v in self._vertices if v.kind == PARAMETER]
        what = "Value" if sketch.of_numbers else "parameter"
        counted = [f"{_many(operations, 'operation')}, {_many(len(trained), what)}"]
        if trained and not sketch.of_numbers:
            numbers = sum(_size(v.shape) for v in trained)
            counted[0] += f" of {_many(numbers, 'number')}"
        if self._labels.dtype:
            counted[0] += f", {self._labels.dtype}"
        return list(map(_line, [*sketch.facts, *counted]))

    # Who is linked to whom

    def _find_paths(self, part: Part, path: list[Part]) -> None:
        self._path[id(part)] = [*path, part]
        for child in part.parts:
            self._find_paths(child, [*path, part])

    def _find_links(self) -> None:
        box, base = self._folded.box, self._folded.base
        order = {id(part): n for n, part in enumerate(self._folded.root.boxes())}
        for i, vertex in enumerate(self._vertices):
            mine = box.get(base[i])
            if mine is None:
                continue
            inputs = vertex.inputs
            if vertex.kind == DERIVATIVE:
                inputs = (inputs[0], *inputs[2:])
            labels = self._labels.places(i) if len(mine.members) == 1 and mine.times == 1 else {}
            for n, x in enumerate(inputs):
                theirs = box.get(base[x])
                if theirs is None or theirs is mine:
                    continue
                if order[id(theirs)] < order[id(mine)]:
                    self._link(theirs, mine, labels.get(x, ""))
                elif base[i] != i:
                    first = box.get(base[self._vertices[base[i]].inputs[n]])
                    if first is not None:
                        self._link_again(theirs, mine, first)

    def _link(self, tail: Part, head: Part, label: str) -> None:
        """Lead an edge out of the frames around its tail and into those around its head."""
        out, into = self._path[id(tail)], self._path[id(head)]
        common = sum(a is b for a, b in zip(out, into, strict=False))
        for n in range(common, len(out) - 1):
            self._in(out[n])[(("part", out[n + 1]), ("out", tail))] = ""
        self._in(out[common - 1])[(("part", out[common]), ("part", into[common]), tail)] = label
        for n in range(common, len(into) - 1):
            self._in(into[n])[(("in", tail), ("part", into[n + 1]))] = label

    def _link_again(self, tail: Part, head: Part, first: Part) -> None:
        """Lead what the next round reads to where it comes in."""
        out, into = self._path[id(tail)], self._path[id(head)]
        common = sum(a is b for a, b in zip(out, into, strict=False))
        frame = out[common - 1]
        if frame.times < 2 or first in self._path[id(frame)] or frame in self._path[id(first)]:
            return
        self._again.setdefault(id(frame), {}).setdefault((tail, first), head)
        for n in range(common - 1, len(out) - 1):
            self._in(out[n])[(("part", out[n + 1]), ("out", tail))] = ""

    def _in(self, frame: Part) -> dict[_Piece, str]:
        return self._links.setdefault(id(frame), {})

    # Layout

    def _box(self, part: Part) -> Box:
        lines = self._labels.lines(part)
        vertex = self._vertices[part.members[-1]]
        width = max(line.width for line in lines) + 2 * PAD_X
        height = sum(SIZES[line.role] * LINE for line in lines) + 2 * PAD_Y
        kind = "function" if part.title and vertex.kind != DERIVATIVE else vertex.kind
        kind = {STATE: PARAMETER, NUMBER: CONSTANT}.get(kind, kind)
        self._kinds[kind] = None
        result = any(self._vertices[i].is_result for i in part.members)
        if result:
            self._kinds["result"] = None
        details = self._labels.details(part)
        return Box(part, kind, lines, max(width, 44.0), height, Point(0.0, 0.0), result, details)

    def _block(self, frame: Part) -> _Block:
        """Lay out what a frame holds."""
        blocks = {id(p): self._block(p) for p in frame.parts if p.is_frame}
        links = self._in(frame)
        shapes: dict[tuple[str, int], Box | Frame | None] = {}
        for part in frame.parts:
            inner = blocks.get(id(part))
            shapes["part", id(part)] = self._box(part) if inner is None else _framed(part, inner)
        for tail, head, *_ in links:  # where edges come in and go out is a place without height
            for kind, part in (tail, head):
                shapes.setdefault((kind, id(part)), None)
        number = {end: n for n, end in enumerate(shapes)}
        sizes = [(2.0, 0.0) if s is None else (s.width, s.height) for s in shapes.values()]
        arranged = arrange(
            sizes,
            [self._numbered(piece, number, blocks) for piece in links],
            [n for (kind, _), n in number.items() if kind == "in"],
            [n for (kind, _), n in number.items() if kind == "out"],
        )
        scene = Scene("", [], arranged.width, arranged.height)
        for shape, corner in zip(shapes.values(), arranged.corners, strict=True):
            if isinstance(shape, Box):
                scene.boxes.append(shape)
            elif isinstance(shape, Frame):
                inside = blocks[id(shape.part)].scene
                inside.shift(corner)
                scene.frames += [shape, *inside.frames]
                scene.boxes += inside.boxes
                scene.edges += inside.edges
            if shape is not None:
                shape.corner = corner
        for (piece, label), route in zip(links.items(), arranged.routes, strict=True):
            (kind, part), ends = piece[1], None
            if kind == "part" and not part.is_frame:  # there the edge ends
                ends = (_source(piece), part)
            scene.edges.append(
                Edge(route, ends is not None, label=label if ends else "", ends=ends)
            )
        middle = {n: c.x + sizes[n][0] / 2 for n, c in enumerate(arranged.corners)}
        block = _Block(
            scene,
            {part: middle[n] for (kind, part), n in number.items() if kind == "in"},
            {part: middle[n] for (kind, part), n in number.items() if kind == "out"},
        )
        if frame is not self._folded.root:
            self._add_margin(frame, block)
        return block

    def _numbered(
        self, piece: _Piece, number: dict[tuple[str, int], int], blocks: dict[int, _Block]
    ) -> Link:
        """Return a piece of an edge by the numbers of its ends, and where on frames they are."""
        (kind, tail), (other, head) = piece[:2]
        source = id(_source(piece))
        leaves = blocks[id(tail)].leaves.get(source) if kind == "part" and tail.is_frame else None
        enters = blocks[id(head)].enters.get(source) if other == "part" and head.is_frame else None
        return Link(number[kind, id(tail)], number[other, id(head)], leaves, enters)

    def _add_margin(self, frame: Part, block: _Block) -> None:
        """Make room for a frame's title and border, and lead edges through it."""
        scene = block.scene
        again = sorted(
            (
                (block.leaves[id(tail)], block.enters[id(first)], (tail, head))
                for (tail, first), head in self._again.get(id(frame), {}).items()
                if id(tail) in block.leaves and id(first) in block.enters
            ),
            key=lambda found: found[:2],
        )
        side = MARGIN + 8.0 * len(again)
        title = columns(_title(frame)) * TITLE_SIZE * CHARACTER + 2 * MARGIN
        wide = max(scene.width + MARGIN + side, title)
        shift = Point(MARGIN + max(0.0, (wide - scene.width - MARGIN - side) / 2), TITLE + 6.0)
        scene.shift(shift)
        scene.width = wide
        bottom = shift.y + scene.height
        scene.height = bottom + MARGIN - 4.0
        for places in (block.enters, block.leaves):
            for source in places:
                places[source] += shift.x
        for x in block.enters.values():
            scene.edges.append(Edge([Point(x, 0.0), Point(x, shift.y)], False))
        for x in block.leaves.values():
            scene.edges.append(Edge([Point(x, bottom), Point(x, scene.height)], False))
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


def _framed(part: Part, block: _Block) -> Frame:
    return Frame(part, _title(part), block.scene.width, block.scene.height)


def _source(piece: _Piece) -> Part:
    """Return the box at which the edge begins that this is a piece of."""
    (kind, tail), (_, head), *whole = piece
    if whole:
        return cast(Part, whole[0])
    return cast(Part, tail if kind == "in" else head)


def _title(part: Part) -> str:
    often = f"× {part.times:,}" if part.times > 1 else ""
    return "  ".join(filter(None, (part.title, often)))


def _line(text: str) -> str:
    """Return a line of the head, not so long that it would make the picture wide."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _size(shape: tuple[int, ...] | None) -> int:
    count = 1
    for length in shape or ():
        count *= length
    return count

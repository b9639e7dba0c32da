"""Where everything in a picture is: frames, boxes with their lines, and edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tapegraph.drawing.labels import CHARACTER, SIZES, TextLine, columns
from tapegraph.drawing.layered import Point
from tapegraph.drawing.parts import Part
from tapegraph.drawing.sketch import DERIVATIVE, PARAMETER

PAD_X, PAD_Y = 10.0, 5.0  # inside a box
LINE = 1.28  # the height of a line, in parts of its size
MARGIN = 14.0  # inside a frame, and around the picture
TITLE, TITLE_SIZE = 20.0, 11.0  # above what a frame holds
HEADER_SIZE, FACT_SIZE = 14.0, 11.0
HEAD = 5.0  # the length of an arrow's head
# The key to the kinds of boxes: what each is called there.
KEY = {
    "input": "argument",
    PARAMETER: "parameter",
    "constant": "constant",
    "operation": "operation",
    "function": "function, folded",
    DERIVATIVE: "gradients",
    "result": "result",
}


@dataclass
class Box:
    """A box: what it shows, and where; the corner is the left upper one."""

    part: Part
    kind: str
    lines: list[TextLine]
    width: float
    height: float
    corner: Point = Point(0.0, 0.0)
    is_result: bool = False
    details: str = ""

    def corners(self) -> list[Point]:
        """Return where it is drawn: of one that stands for several twice, as a stack."""
        front = [self.corner]
        return [_moved(self.corner, Point(3.0, 3.0)), *front] if self.part.times > 1 else front

    def baselines(self) -> Iterator[tuple[TextLine, Point]]:
        """Yield each line with the middle of its baseline."""
        y = self.corner.y + PAD_Y
        for line in self.lines:
            size = SIZES[line.role]
            y += size * LINE
            yield line, Point(self.corner.x + self.width / 2, y - size * 0.36)


@dataclass
class Frame:
    """A frame around boxes."""

    part: Part
    title: str
    width: float
    height: float
    corner: Point = Point(0.0, 0.0)


@dataclass
class Edge:
    """An edge through points, in pairs between which it is straight; ``again`` leads back up."""

    points: list[Point]
    has_head: bool = True
    again: bool = False
    label: str = ""
    ends: tuple[Part, Part] | None = None

    def pieces(self) -> list[tuple[Point, ...]]:
        """Return where the line begins, and each piece of it: an end, or two handles and an end.

        It ends short of its arrow's head.
        """
        points = self.points
        x, y = points[-1]
        if self.again:
            points = [*points[:-1], Point(x + HEAD, y)]
        elif self.has_head:
            points = [Point(p.x, min(p.y, y - HEAD)) for p in points]
        last = points[0]
        found: list[tuple[Point, ...]] = [(last,)]
        for n, p in enumerate(points[1:], 1):
            if n % 2 or self.again or abs(p.x - last.x) < 0.05:
                found.append((p,))
            else:
                half = (last.y + p.y) / 2
                found.append((Point(last.x, half), Point(p.x, half), p))
            last = p
        return found

    def head(self) -> list[Point]:
        """Return the corners of its arrow's head, none where it has none."""
        x, y = self.points[-1]
        if not self.has_head:
            return []
        if self.again:
            return [Point(x, y), Point(x + HEAD + 1, y - 3), Point(x + HEAD + 1, y + 3)]
        return [Point(x, y), Point(x - 3, y - HEAD - 1), Point(x + 3, y - HEAD - 1)]


@dataclass
class Scene:
    """A whole picture."""

    title: str
    facts: list[str]
    width: float = 0.0
    height: float = 0.0
    frames: list[Frame] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    # The kinds of boxes that there are, in the order of the key to them, and where that stands.
    kinds: list[str] = field(default_factory=list)
    key: float = 0.0

    def texts(self) -> Iterator[tuple[str, Point, float, str]]:
        """Yield all that is written outside of boxes: text, where it starts, size and role."""
        yield self.title, Point(MARGIN, MARGIN + HEADER_SIZE), HEADER_SIZE, "name"
        for n, fact in enumerate(self.facts):
            y = MARGIN + HEADER_SIZE * 1.5 + (n + 0.8) * FACT_SIZE * 1.45
            yield fact, Point(MARGIN, y), FACT_SIZE, "type"
        for kind, x in self.keys():
            yield KEY[kind], Point(x + 18, self.key + 1), FACT_SIZE, "type"
        for frame in self.frames:
            place = Point(frame.corner.x + 12, frame.corner.y + 15)
            yield frame.title, place, TITLE_SIZE, "title"
        for edge in self.edges:
            x, y = edge.points[-1]
            yield edge.label, Point(x + 5, y - 3), 8.5, "type"

    def keys(self) -> Iterator[tuple[str, float]]:
        """Yield the kinds of boxes, with where the key to each begins."""
        x = MARGIN
        for kind in self.kinds:
            yield kind, x
            x += 34 + columns(KEY[kind]) * FACT_SIZE * CHARACTER

    def shift(self, by: Point) -> None:
        """Move all of it."""
        for frame in self.frames:
            frame.corner = _moved(frame.corner, by)
        for box in self.boxes:
            box.corner = _moved(box.corner, by)
        for edge in self.edges:
            edge.points = [_moved(p, by) for p in edge.points]


def _moved(point: Point, by: Point) -> Point:
    return Point(point.x + by.x, point.y + by.y)

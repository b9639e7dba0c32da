"""Where everything in a picture is, frames, boxes with their lines and edges, and its colours."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tapegraph.drawing.labels import CHARACTER, SIZES, TextLine, columns
from tapegraph.drawing.layered import Point
from tapegraph.drawing.sketch import Part
from tapegraph.errors import message

PAD_X, PAD_Y = 10.0, 5.0  # inside a box
LINE = 1.28  # the height of a line, in parts of its size
MARGIN = 14.0  # inside a frame, and around the picture
TITLE, TITLE_SIZE = 20.0, 11.0  # above what a frame holds
HEADER_SIZE, FACT_SIZE = 14.0, 11.0
HEAD = 5.0  # the length of an arrow's head
# The key to the kinds of boxes: what each is called there.
KEY = {
    "input": "argument",
    "param": "parameter",
    "constant": "constant",
    "operation": "operation",
    "function": "function, folded",
    "gradient": "gradients",
    "result": "result",
}


class Rect(NamedTuple):
    """A rectangle with round corners; of a result the border has another colour."""

    kind: str
    corner: Point
    width: float
    height: float
    radius: float
    is_result: bool = False
    thick: float = 1.0  # its border, where no style says so


class Text(NamedTuple):
    """A line of text on its baseline, from a place on or around it."""

    text: str
    place: Point
    size: float
    role: str
    is_centred: bool = False


@dataclass
class Box:
    """A box: what it shows, and where; the corner is the left upper one."""

    part: Part
    kind: str
    lines: list[TextLine]
    width: float
    height: float
    is_result: bool
    details: str
    corner: Point = Point(0.0, 0.0)

    def shapes(self) -> Iterator[Rect | Text]:
        """Yield what is drawn: of one that stands for several a stack of two."""
        thick = 2.2 if self.is_result else 1.0
        for by in (3.0, 0.0) if self.part.times > 1 else (0.0,):
            corner = _moved(self.corner, Point(by, by))
            yield Rect(self.kind, corner, self.width, self.height, 6, self.is_result, thick)
        x, y = self.corner.x + self.width / 2, self.corner.y + PAD_Y
        for line in self.lines:
            size = SIZES[line.role]
            y += size * LINE
            yield Text(line.text, Point(x, y - size * 0.36), size, line.role, True)


@dataclass
class Frame:
    """A frame around boxes."""

    part: Part
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
        """Return where it begins, and each piece up to the head: an end, or two handles and one."""
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

    def shapes(self) -> Iterator[Rect | Edge | Text]:
        """Yield all that is drawn around and below boxes."""
        for frame in self.frames:
            yield Rect("frame", frame.corner, frame.width, frame.height, 8)
        for kind, x in self._keys():
            is_result = kind == "result"
            fill = "operation" if is_result else kind
            yield Rect(fill, Point(x, self.key - 9), 12, 12, 3, is_result)
        yield from self.edges
        yield from (text for text in self.texts() if text.text)

    def texts(self) -> Iterator[Text]:
        """Yield all that is written outside of boxes."""
        yield Text(self.title, Point(MARGIN, MARGIN + HEADER_SIZE), HEADER_SIZE, "name")
        for n, fact in enumerate(self.facts):
            y = MARGIN + HEADER_SIZE * 1.5 + (n + 0.8) * FACT_SIZE * 1.45
            yield Text(fact, Point(MARGIN, y), FACT_SIZE, "type")
        for kind, x in self._keys():
            yield Text(KEY[kind], Point(x + 18, self.key + 1), FACT_SIZE, "type")
        for frame in self.frames:
            place = Point(frame.corner.x + 12, frame.corner.y + 15)
            yield Text(frame.part.heading, place, TITLE_SIZE, "title")
        for edge in self.edges:
            x, y = edge.points[-1]
            yield Text(edge.label, Point(x + 5, y - 3), 8.5, "type")

    def _keys(self) -> Iterator[tuple[str, float]]:
        """Yield the kinds of boxes, with where the key to each begins."""
        x = MARGIN
        for kind in self.kinds:
            yield kind, x
            x += key_width(kind)

    def shift(self, by: Point) -> None:
        """Move all of it."""
        placed: list[Frame | Box] = [*self.frames, *self.boxes]
        for shape in placed:
            shape.corner = _moved(shape.corner, by)
        for edge in self.edges:
            edge.points = [_moved(p, by) for p in edge.points]


def key_width(kind: str) -> float:
    """Return how much room the key to a kind of boxes takes."""
    return 34 + columns(KEY[kind]) * FACT_SIZE * CHARACTER


def _moved(point: Point, by: Point) -> Point:
    return Point(point.x + by.x, point.y + by.y)


Theme = Literal["light", "dark"]

# Light and dark: of a kind of box fill and border, and of everything else.
_COLOURS = {
    "ground": ("#ffffff", "#14171d"),
    "ink": ("#1f2430", "#e8ebf1"),
    "faint": ("#5b6472", "#a2abba"),
    "edge": ("#8a93a3", "#717b8c"),
    "frame": ("#f6f7fa", "#1b1f27"),
    "frame-line": ("#c3c9d4", "#414a59"),
    "slope": ("#b4460e", "#f5a26f"),
    "operation": ("#ffffff", "#252a34"),
    "operation-line": ("#7d8797", "#7d8797"),
    "param": ("#e3eefc", "#1b3350"),
    "param-line": ("#3b78c3", "#5f9de6"),
    "constant": ("#eeeff2", "#2b3039"),
    "constant-line": ("#a3abb8", "#6b7482"),
    "input": ("#e2f4e6", "#17382a"),
    "input-line": ("#35915a", "#52b57c"),
    "function": ("#f1eafb", "#332649"),
    "function-line": ("#8257c2", "#a67fe0"),
    "gradient": ("#fdebdf", "#48280f"),
    "gradient-line": ("#cf6a2b", "#e58a4d"),
    "result-line": ("#1f2430", "#ffffff"),
}
LIGHT, DARK = ({name: pair[n] for name, pair in _COLOURS.items()} for n in (0, 1))
# The kinds of boxes.
KINDS = ("operation", "param", "constant", "input", "function", "gradient")
# The colour of what is written, by its role.
INK = {"type": "faint", "note": "faint", "title": "faint", "slope": "slope"}


def colours(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme; refuse what is none."""
    if theme not in typing.get_args(Theme):
        raise ValueError(message("draw", f"theme={theme!r}", "'light', 'dark' or None"))
    return DARK if theme == "dark" else LIGHT

"""A picture: placed and coloured boxes, frames and edges, as SVG and as PNG."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from tapegraph.display import escape
from tapegraph.drawing.folding import Part
from tapegraph.drawing.labels import CHARACTER, SIZES, TextLine, columns
from tapegraph.errors import message

_LEAST = 44.0  # the width of a box, around which a frame is wide enough for its title
_PAD_X, _PAD_Y = 10.0, 5.0  # inside a box
_LINE = 1.28  # the height of a line, in parts of its size
MARGIN = 14.0  # inside a frame, and around the picture
TITLE = 28.0  # the room above a frame's content
_HEADER_SIZE, _FACT_SIZE = 14.0, 11.0
HEAD = 5.0  # the length of an arrow's head
FONT = "DejaVu Sans Mono"  # Matplotlib's own, and as wide as any
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
Theme = Literal["light", "dark"]

# Light and dark: of a kind of box fill and border, and of everything else. A style sheet finds the
# dark one by the light one, and so no two light ones are alike.
_COLOURS = {
    "ground": ("#ffffff", "#14171d"),
    "ink": ("#1f2430", "#e8ebf1"),
    "faint": ("#5b6472", "#a2abba"),
    "edge": ("#8a93a3", "#717b8c"),
    "frame": ("#f6f7fa", "#1b1f27"),
    "frame-line": ("#c3c9d4", "#414a59"),
    "slope": ("#b4460e", "#f5a26f"),
    "operation": ("#fefeff", "#252a34"),
    "operation-line": ("#7d8797", "#7d8798"),
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
    "result-line": ("#1f2431", "#ffffff"),
}
LIGHT, DARK = ({name: pair[n] for name, pair in _COLOURS.items()} for n in (0, 1))
# The kinds of boxes, and their names in the legend.
KINDS = {
    "input": "argument",
    "param": "parameter",
    "constant": "constant",
    "operation": "operation",
    "function": "function, folded",
    "gradient": "gradients",
}
_KEY = {**KINDS, "result": "result"}
# The colour of text by its role.
INK = {"type": "faint", "note": "faint", "title": "faint", "slope": "slope"}
BOLD = ("name", "title")


def colours(theme: Theme) -> dict[str, str]:
    if theme not in typing.get_args(Theme):
        raise ValueError(message("draw", f"theme={theme!r}", "'light', 'dark' or None"))
    return DARK if theme == "dark" else LIGHT


class Point(NamedTuple):
    """A place in a picture; y grows downwards."""

    x: float
    y: float


class Rect(NamedTuple):
    """A rectangle with round corners; a result's border has another colour."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    radius: float
    is_result: bool = False


class Text(NamedTuple):
    """A line of text on its baseline, from a place on or around it."""

    text: str
    x: float
    y: float
    size: float
    role: str
    is_centred: bool = False


@dataclass
class Box:
    """A box with its text and its left upper corner."""

    part: Part
    kind: str
    lines: list[TextLine]
    details: str
    is_result: bool
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(_LEAST, *(line.width + 2 * _PAD_X for line in self.lines))

    @property
    def height(self) -> float:
        return sum(SIZES[line.role] * _LINE for line in self.lines) + 2 * _PAD_Y

    def shapes(self) -> Iterator[Rect | Text]:
        """Yield the shapes of the box; a box that stands for several is a stack of two."""
        for by in (3.0, 0.0) if self.part.times > 1 else (0.0,):
            size = self.width, self.height
            yield Rect(self.kind, self.x + by, self.y + by, *size, 6, self.is_result)
        y = self.y + _PAD_Y
        for text, role in self.lines:
            y += SIZES[role] * _LINE
            x, baseline = self.x + self.width / 2, y - SIZES[role] * 0.36
            yield Text(text, x, baseline, SIZES[role], role, True)


@dataclass
class Frame:
    """A frame around boxes, and its left upper corner."""

    part: Part
    x: float
    y: float
    width: float
    height: float


@dataclass
class Edge:
    """An edge through points, straight in pairs; ``again`` leads back up."""

    ends: tuple[Part, Part]
    points: list[Point]
    label: str = ""
    again: bool = False

    def pieces(self) -> list[tuple[Point, ...]]:
        """Return where it begins, and each piece up to the head: an end, or two handles and one."""
        *way, (x, y) = self.points
        found: list[tuple[Point, ...]] = [(way[0],)]
        for n, (last, p) in enumerate(pairwise([*way, Point(x, y - HEAD)])):
            if n % 2 == 0 or self.again or abs(p.x - last.x) < 0.05:
                found.append((p,))
            else:
                half = (last.y + p.y) / 2
                found.append((Point(last.x, half), Point(p.x, half), p))
        return found

    def head(self) -> list[Point]:
        x, y = self.points[-1]
        return [Point(x, y), Point(x - 3, y - HEAD - 1), Point(x + 3, y - HEAD - 1)]


@dataclass
class Scene:
    """A whole picture."""

    title: str
    facts: list[str]
    boxes: list[Box]
    frames: list[Frame] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0

    @property
    def kinds(self) -> list[str]:
        found = {box.kind for box in self.boxes} | {"result" for box in self.boxes if box.is_result}
        return [kind for kind in _KEY if kind in found]

    @property
    def key(self) -> float:
        return MARGIN + _HEADER_SIZE * 1.5 + len(self.facts) * _FACT_SIZE * 1.45 + _FACT_SIZE

    @property
    def top(self) -> float:
        return self.key + _FACT_SIZE + MARGIN

    @property
    def header_width(self) -> float:
        facts = max((columns(fact) for fact in self.facts), default=0) * _FACT_SIZE
        written = max(columns(self.title) * _HEADER_SIZE, facts) * CHARACTER
        return max(written, sum(map(_key_width, self.kinds)))

    def shapes(self) -> Iterator[Rect | Edge | Text]:
        for f in self.frames:
            yield Rect("frame", f.x, f.y, f.width, f.height, 8)
            if f.part.heading:
                yield Text(f.part.heading, f.x + 12, f.y + 15, _FACT_SIZE, "title")
        yield Text(self.title, MARGIN, MARGIN + _HEADER_SIZE, _HEADER_SIZE, "name")
        for n, fact in enumerate(self.facts):
            y = MARGIN + _HEADER_SIZE * 1.5 + (n + 0.8) * _FACT_SIZE * 1.45
            yield Text(fact, MARGIN, y, _FACT_SIZE, "type")
        x = MARGIN
        for kind in self.kinds:
            is_result = kind == "result"
            fill = "operation" if is_result else kind
            yield Rect(fill, x, self.key - 9, 12, 12, 3, is_result)
            yield Text(_KEY[kind], x + 18, self.key + 1, _FACT_SIZE, "type")
            x += _key_width(kind)
        for edge in self.edges:
            yield edge
            if edge.label:
                x, y = edge.points[-1]
                yield Text(edge.label, x + 5, y - 3, 8.5, "type")


def _key_width(kind: str) -> float:
    return 34 + columns(_KEY[kind]) * _FACT_SIZE * CHARACTER


# SVG: light or dark as who looks at it prefers; every text in it is escaped. Colours are written
# for what draws SVG without its style sheets; a style sheet has the other theme.


def svg(scene: Scene, theme: Theme | None = None) -> Iterator[str]:
    """Yield the lines of a picture as SVG, in one theme or, by the reader's preference, in both."""
    width, height = f"{scene.width:.0f}", f"{scene.height:.0f}"
    colour = colours(theme or "light")
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" class="tapegraph" role="img" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONTS}">'
    )
    yield f"<title>{escape(scene.title)}</title>"
    if theme is None:
        # For browsers alone: others take the height for none.
        fitted = "@media screen {.tapegraph {max-width: 100%; height: auto}}"
        rules = " ".join(
            f'.tapegraph [{paint}="{light}"] {{{paint}: {dark}}}'
            for light, dark in _COLOURS.values()
            for paint in ("fill", "stroke")
        )
        yield f"<style>{fitted} @media (prefers-color-scheme: dark) {{{rules}}}</style>"
    yield f'<rect width="{width}" height="{height}" fill="{colour["ground"]}"/>'
    for shape in scene.shapes():
        yield from _elements(shape, colour)
    for box in scene.boxes:
        yield f"<g><title>{escape(box.details)}</title>"
        for shape in box.shapes():
            yield from _elements(shape, colour)
        yield "</g>"
    yield "</svg>"


def _elements(shape: Rect | Text | Edge, colour: Mapping[str, str]) -> Iterator[str]:
    if isinstance(shape, Rect):
        place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
        place += f' width="{shape.width:.1f}" height="{shape.height:.1f}"'
        paint = f'fill="{colour[shape.kind]}" stroke="{colour[_line_of(shape)]}"'
        paint += ' stroke-width="2.2"' if shape.is_result else ""
        yield f'<rect {place} rx="{shape.radius}" {paint}/>'
    elif isinstance(shape, Text):
        anchor = "middle" if shape.is_centred else "start"
        place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size}"'
        place += f' text-anchor="{anchor}"'
        paint = f'fill="{colour[INK.get(shape.role, "ink")]}"'
        paint += ' font-weight="600"' if shape.role in BOLD else ""
        yield f"<text {place} {paint}>{escape(shape.text)}</text>"
    else:
        (start,), *pieces = shape.pieces()
        path = f"M{start.x:.1f} {start.y:.1f}"
        for piece in pieces:
            places = " ".join(f"{p.x:.1f} {p.y:.1f}" for p in piece)
            path += ("L" if len(piece) == 1 else "C") + places
        paint = f'fill="none" stroke="{colour["edge"]}" stroke-width="1.2"'
        paint += ' stroke-dasharray="4 3"' if shape.again else ""
        yield f'<path d="{path}" {paint}/>'
        corners = "L".join(f"{p.x:.1f} {p.y:.1f}" for p in shape.head())
        yield f'<path d="M{corners}z" fill="{colour["edge"]}"/>'


def _line_of(shape: Rect) -> str:
    return f"{'result' if shape.is_result else shape.kind}-line"


# PNG, drawn by Matplotlib (the extra ``draw``) as it is laid out


def save_png(scene: Scene, path: str, theme: Theme, scale: float) -> None:
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.font_manager import findfont, get_font
    except ModuleNotFoundError as error:
        fix = 'Install it with: pip install "matplotlib>=3.10.7"; .svg and .dot need nothing.'
        received = f"a path that ends in .png, without {error.name}"
        text = message("save", received, "Matplotlib to be installed", fix)
        raise ModuleNotFoundError(text, name=error.name) from None
    # A unit of the picture is a point, of which there are 72 in an inch.
    width, height = round(scene.width), round(scene.height)
    figure = Figure(figsize=(width / 72, height / 72), dpi=72 * scale)
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    colour = colours(theme)
    figure.patch.set_facecolor(colour["ground"])
    shapes = [*scene.shapes(), *(shape for box in scene.boxes for shape in box.shapes())]
    known = get_font(findfont(FONT)).get_charmap()
    for shape in shapes:
        if isinstance(shape, Text):
            text = "".join(c if ord(c) in known else "\ufffd" for c in shape.text)
            shape = shape._replace(text=text)
        _put(axes, shape, colour)
    with rc_context({"text.hinting": "none"}):  # which would make small letters wider
        canvas.print_png(path)


def _put(axes: Any, shape: Rect | Text | Edge, colour: Mapping[str, str]) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path

    if isinstance(shape, Rect):
        style = f"round,pad=0,rounding_size={shape.radius}"
        line = colour[_line_of(shape)]
        patch = FancyBboxPatch((shape.x, shape.y), shape.width, shape.height, boxstyle=style)
        patch.set(fc=colour[shape.kind], ec=line, lw=2.2 if shape.is_result else 1.0, zorder=1)
        axes.add_patch(patch)
    elif isinstance(shape, Text):
        axes.text(
            shape.x,
            shape.y,
            shape.text,
            ha="center" if shape.is_centred else "left",
            va="baseline",
            fontsize=shape.size,
            color=colour[INK.get(shape.role, "ink")],
            family=FONT,
            weight="bold" if shape.role in BOLD else "normal",
            parse_math=False,
            zorder=3,
        )
    else:
        (start,), *pieces = shape.pieces()
        points, codes = [start], [Path.MOVETO]
        for piece in pieces:
            points += piece
            codes += [Path.LINETO] if len(piece) == 1 else [Path.CURVE4] * 3
        dashes = (0, (4, 3)) if shape.again else "-"
        path = Path(points, codes)
        axes.add_patch(PathPatch(path, fill=False, ec=colour["edge"], lw=1.2, ls=dashes, zorder=2))
        axes.add_patch(Polygon(shape.head(), fc=colour["edge"], lw=0, zorder=2))

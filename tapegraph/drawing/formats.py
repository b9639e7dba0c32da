"""A picture in each format: SVG, PNG by Matplotlib, Graphviz's language, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from tapegraph.drawing.labels import printable
from tapegraph.drawing.scene import (
    DARK,
    INK,
    KINDS,
    LIGHT,
    Box,
    Edge,
    Rect,
    Scene,
    Text,
    Theme,
    colours,
)
from tapegraph.drawing.sketch import Part
from tapegraph.errors import message

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# A line of text, in characters.
_WIDTH = 110

# SVG: light or dark as who looks at it prefers; every text in it is escaped


def svg(scene: Scene, theme: Theme | None = None) -> str:
    """Return a picture as SVG: of one theme, or of both."""
    return "\n".join(_svg(scene, theme)) + "\n"


def _svg(scene: Scene, theme: Theme | None) -> Iterator[str]:
    width, height = f"{scene.width:.0f}", f"{scene.height:.0f}"
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" class="tapegraph" role="img" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONTS}" style="max-width: 100%; height: auto">'
    )
    yield f"<title>{_escaped(scene.title)}</title>"
    yield f"<style>{_style(theme)}</style>"
    yield f'<rect class="ground" width="{width}" height="{height}"/>'
    for shape in scene.shapes():
        yield from _elements(shape)
    for box in scene.boxes:
        yield f"<g><title>{_escaped(box.details)}</title>"
        for shape in box.shapes():
            yield from _elements(shape)
        yield "</g>"
    yield "</svg>"


def _elements(shape: Rect | Text | Edge) -> Iterator[str]:
    if isinstance(shape, Rect):
        kind = "frame" if shape.kind == "frame" else f"box {shape.kind}"
        kind += " result" if shape.is_result else ""
        (x, y), width, height = shape.corner, shape.width, shape.height
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        yield f'<rect class="{kind}" {place} rx="{shape.radius}"/>'
    elif isinstance(shape, Text):
        (x, y), anchor = shape.place, "middle" if shape.is_centred else "start"
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{shape.size}" text-anchor="{anchor}"'
        yield f'<text class="{shape.role}" {place}>{_escaped(shape.text)}</text>'
    else:
        (start,), *pieces = shape.pieces()
        path = f"M{start.x:.1f} {start.y:.1f}"
        for piece in pieces:
            places = " ".join(f"{p.x:.1f} {p.y:.1f}" for p in piece)
            path += ("L" if len(piece) == 1 else "C") + places
        yield f'<path class="edge{" again" if shape.again else ""}" d="{path}"/>'
        if corners := shape.head():
            yield f'<path class="head" d="M{"L".join(f"{p.x:.1f} {p.y:.1f}" for p in corners)}z"/>'


def _style(theme: Theme | None) -> str:
    """Return the rules: of both themes where none is chosen, for the one that is preferred."""
    if theme is not None:
        return _rules(colours(theme))
    return f"{_rules(LIGHT)} @media (prefers-color-scheme: dark) {{{_rules(DARK)}}}"


def _rules(colour: Mapping[str, str]) -> str:
    """Return the rules of a theme, for this picture alone: a page takes them for its own."""
    rules = {
        ".ground": f"fill: {colour['ground']}",
        "text": f"fill: {colour['ink']}",
        ".name, .tapegraph .title": "font-weight: 600",
        ".edge": f"fill: none; stroke: {colour['edge']}; stroke-width: 1.2",
        ".again": "stroke-dasharray: 4 3",
        ".head": f"fill: {colour['edge']}",
        ".frame": f"fill: {colour['frame']}; stroke: {colour['frame-line']}",
    }
    rules |= {f".{role}": f"fill: {colour[ink]}" for role, ink in INK.items()}
    rules |= {
        f".box.{kind}": f"fill: {colour[kind]}; stroke: {colour[f'{kind}-line']}" for kind in KINDS
    }
    rules[".box.result"] = f"stroke: {colour['result-line']}; stroke-width: 2.2"
    return " ".join(f".tapegraph {selector} {{{rule}}}" for selector, rule in rules.items())


def _escaped(text: str) -> str:
    return escape(printable(text))


# PNG, drawn by Matplotlib (the extra ``draw``) as it is laid out


def save_png(scene: Scene, path: str, theme: Theme, scale: float) -> None:
    """Write a picture, of so many dots for each of its units; Matplotlib has to be installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        fix = 'Install it with: pip install "tapegraph[draw]"; .svg and .dot need nothing.'
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
    for shape in scene.shapes():
        _put(axes, shape, colour)
    for box in scene.boxes:
        for shape in box.shapes():
            _put(axes, shape, colour)
    with rc_context({"text.hinting": "none"}):  # which would make small letters wider
        canvas.print_png(path)


def _put(axes: Any, shape: Rect | Text | Edge, colour: Mapping[str, str]) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path

    if isinstance(shape, Rect):
        style = f"round,pad=0,rounding_size={shape.radius}"
        line = colour[f"{'result' if shape.is_result else shape.kind}-line"]
        patch = FancyBboxPatch(shape.corner, shape.width, shape.height, boxstyle=style)
        patch.set(fc=colour[shape.kind], ec=line, lw=shape.thick, zorder=1)
        axes.add_patch(patch)
    elif isinstance(shape, Text):
        axes.text(
            *shape.place,
            shape.text,
            ha="center" if shape.is_centred else "left",
            va="baseline",
            fontsize=shape.size,
            color=colour[INK.get(shape.role, "ink")],
            family="monospace",
            weight="bold" if shape.role in ("name", "title") else "normal",
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
        if corners := shape.head():
            axes.add_patch(Polygon(corners, fc=colour["edge"], lw=0, zorder=2))


# DOT, for who would lay it out otherwise


def graphviz(scene: Scene, root: Part) -> str:
    """Return a picture as a graph in Graphviz's language."""
    return "\n".join(_dot(scene, root)) + "\n"


def _dot(scene: Scene, root: Part) -> Iterator[str]:
    boxes = {box.part: box for box in scene.boxes}
    number = {part: n for n, part in enumerate(boxes)}

    def inside(frame: Part, indent: str) -> Iterator[str]:
        for part in frame.parts:
            if part.is_frame:
                yield f"{indent}subgraph cluster_{number[part.boxes()[0]]}_{len(indent)} {{"
                yield f"{indent}  label={_quoted([part.heading])};"
                yield from inside(part, indent + "  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}n{number[part]} [{_node(boxes[part])}];"

    yield "digraph tapegraph {"
    yield f"  label={_quoted([scene.title, *scene.facts])};"
    yield '  labelloc="t";'
    yield '  node [shape="box", style="rounded,filled", fontname="monospace", fontsize="11"];'
    yield from inside(root, "  ")
    for edge in scene.edges:
        if edge.ends is not None:
            tail, head = edge.ends
            options = [f"headlabel={_quoted([edge.label])}"] if edge.label else []
            options += ['style="dashed"', 'constraint="false"'] if edge.again else []
            yield f"  n{number[tail]} -> n{number[head]} [{', '.join(options)}];"
    yield "}"


def _node(box: Box) -> str:
    fill, line = LIGHT[box.kind], LIGHT[f"{'result' if box.is_result else box.kind}-line"]
    label = _quoted([line.text for line in box.lines])
    return f'label={label}, fillcolor="{fill}", color="{line}"'


def _quoted(lines: list[str]) -> str:
    """Return lines as one string in quotes, in which Graphviz finds no escape of its own."""
    safe = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    text = "\\n".join(" ".join(line.split()) for line in safe)
    return f'"{text}"'


# Text: a line for each box, with the numbers of those that it reads


def text(scene: Scene, root: Part) -> str:
    """Return a picture as text."""
    boxes = {box.part: box for box in scene.boxes}
    number = {part: n for n, part in enumerate(root.boxes(), 1)}
    reads: dict[Part, list[int]] = {}
    for edge in scene.edges:
        if edge.ends is not None and not edge.again:
            tail, head = edge.ends
            reads.setdefault(head, []).append(number[tail])

    def lines(frame: Part, indent: str) -> Iterator[str]:
        for part in frame.parts:
            if part.is_frame:
                yield f"{indent}{part.heading}"
                yield from lines(part, indent + "    ")
                continue
            of = "".join(f" [{n}]" for n in dict.fromkeys(reads.get(part, ())))
            whole = "  ".join(line.text for line in boxes[part].lines)
            line = f"{indent}{number[part]:>3}  {whole}" + (f"  of{of}" if of else "")
            yield line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"

    return "\n".join([scene.title, *scene.facts, *lines(root, "")])

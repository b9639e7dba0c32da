"""A picture as SVG, light or dark as who looks at it prefers; every text in it is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from tapegraph.drawing.labels import SIZES, printable
from tapegraph.drawing.layered import Point
from tapegraph.drawing.scene import Box, Edge, Scene
from tapegraph.drawing.themes import DARK, INK, KINDS, LIGHT, Theme, colours

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def svg(scene: Scene, theme: Theme | None = None) -> str:
    """Return a picture as SVG: of one theme, or of both."""
    return "\n".join(_lines(scene, theme)) + "\n"


def _lines(scene: Scene, theme: Theme | None) -> Iterator[str]:
    width, height = f"{scene.width:.0f}", f"{scene.height:.0f}"
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" class="tapegraph" role="img" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONTS}" style="max-width: 100%; height: auto">'
    )
    yield f"<title>{_escaped(scene.title)}</title>"
    yield f"<style>{_style(theme)}</style>"
    yield f'<rect class="ground" width="{width}" height="{height}"/>'
    for frame in scene.frames:
        yield _rect("frame", frame.corner, frame.width, frame.height, 8)
    for kind, x in scene.keys():
        shown = "operation result" if kind == "result" else kind
        yield _rect(f"box {shown}", Point(x, scene.key - 9), 12, 12, 3)
    for edge in scene.edges:
        yield from _edge(edge)
    for text, place, size, role in scene.texts():
        if text:
            yield _text(text, place, size, role, "start")
    for box in scene.boxes:
        yield from _box(box)
    yield "</svg>"


def _box(box: Box) -> Iterator[str]:
    kind = f"box {box.kind}{' result' if box.is_result else ''}"
    yield f"<g><title>{_escaped(box.details)}</title>"
    for corner in box.corners():
        yield _rect(kind, corner, box.width, box.height, 6)
    for line, place in box.baselines():
        yield _text(line.text, place, SIZES[line.role], line.role, "middle")
    yield "</g>"


def _rect(kind: str, corner: Point, width: float, height: float, radius: float) -> str:
    place = f'x="{corner.x:.1f}" y="{corner.y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place} rx="{radius}"/>'


def _text(text: str, at: Point, size: float, role: str, anchor: str) -> str:
    place = f'x="{at.x:.1f}" y="{at.y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text class="{role}" {place}>{_escaped(text)}</text>'


def _edge(edge: Edge) -> Iterator[str]:
    (start,), *pieces = edge.pieces()
    path = f"M{start.x:.1f} {start.y:.1f}"
    for piece in pieces:
        places = " ".join(f"{p.x:.1f} {p.y:.1f}" for p in piece)
        path += ("L" if len(piece) == 1 else "C") + places
    yield f'<path class="edge{" again" if edge.again else ""}" d="{path}"/>'
    if corners := edge.head():
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

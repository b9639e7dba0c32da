"""A picture as PNG, drawn by Matplotlib (the extra ``draw``) as it is laid out."""

from __future__ import annotations

import os
from typing import Any

from tapegraph.drawing.labels import SIZES
from tapegraph.drawing.layered import Point
from tapegraph.drawing.scene import Edge, Scene
from tapegraph.drawing.themes import INK, Theme, colours
from tapegraph.errors import explain


def save(scene: Scene, path: str | os.PathLike[str], theme: Theme, scale: float) -> None:
    """Write a picture, of so many dots for each of its units.

    - Raises ModuleNotFoundError: Matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        fix = 'Install it with: pip install "tapegraph[draw]"; .svg and .dot need nothing.'
        received = f"a path that ends in .png, without {error.name}"
        message = explain("save", received, "Matplotlib to be installed", fix)
        raise ModuleNotFoundError(message, name=error.name) from None
    # A unit of the picture is a point, of which there are 72 in an inch.
    width, height = round(scene.width), round(scene.height)
    figure = Figure(figsize=(width / 72, height / 72), dpi=72 * scale)
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    colour = colours(theme)
    figure.patch.set_facecolor(colour["ground"])
    _draw(scene, axes, colour)
    with rc_context({"text.hinting": "none"}):  # which would make small letters wider
        canvas.print_png(os.fspath(path))


def _draw(scene: Scene, axes: Any, colour: dict[str, str]) -> None:
    for frame in scene.frames:
        _rect(axes, frame.corner, frame.width, frame.height, 8, colour, "frame", 1.0)
    for kind, x in scene.keys():
        fill = "operation" if kind == "result" else kind
        _rect(axes, Point(x, scene.key - 9), 12, 12, 3, colour, fill, 1.0, kind)
    for edge in scene.edges:
        _edge(axes, edge, colour["edge"])
    for text, place, size, role in scene.texts():
        _text(axes, text, place, size, role, colour, "left")
    for box in scene.boxes:
        border, thick = ("result", 2.2) if box.is_result else (box.kind, 1.0)
        for corner in box.corners():
            _rect(axes, corner, box.width, box.height, 6, colour, box.kind, thick, border)
        for line, place in box.baselines():
            _text(axes, line.text, place, SIZES[line.role], line.role, colour, "center")


def _rect(
    axes: Any,
    corner: Point,
    width: float,
    height: float,
    radius: float,
    colour: dict[str, str],
    kind: str,
    thick: float,
    border: str = "",
) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = f"round,pad=0,rounding_size={radius}"
    line = colour[f"{border or kind}-line"]
    axes.add_patch(
        FancyBboxPatch(
            corner, width, height, boxstyle=style, fc=colour[kind], ec=line, lw=thick, zorder=1
        )
    )


def _edge(axes: Any, edge: Edge, colour: str) -> None:
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    points: list[Point] = []
    codes: list[Any] = []
    for n, piece in enumerate(edge.pieces()):
        points += piece
        line = Path.LINETO if n else Path.MOVETO
        codes += [line] if len(piece) == 1 else [Path.CURVE4] * 3
    dashes = (0, (4, 3)) if edge.again else "-"
    path = Path(points, codes)
    axes.add_patch(PathPatch(path, fill=False, ec=colour, lw=1.2, ls=dashes, zorder=2))
    if corners := edge.head():
        axes.add_patch(Polygon(corners, fc=colour, lw=0, zorder=2))


def _text(
    axes: Any,
    text: str,
    at: Point,
    size: float,
    role: str,
    colour: dict[str, str],
    side: str,
) -> None:
    bold = "bold" if role in ("name", "title") else "normal"
    ink = colour[INK.get(role, "ink")]
    axes.text(
        *at,
        text,
        ha=side,
        va="baseline",
        fontsize=size,
        color=ink,
        family="monospace",
        weight=bold,
        parse_math=False,
        zorder=3,
    )

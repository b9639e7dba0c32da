"""What must hold of every picture, by plain geometry: checked on what all writers share."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tapegraph.drawing.labels import columns
from tapegraph.drawing.scene import Box, Edge, Frame, Scene, Text

# As wide as the widest of the monospaced fonts that are asked for: DejaVu, Menlo 0.602.
WIDTH_OF_A_LETTER = 0.602


def check(drawing) -> None:
    """Boxes do not overlap, text fits, edges go down and around boxes, all is in the picture."""
    scene = drawing._scene
    inside(scene)
    for one, other in combinations(scene.boxes, 2):
        assert not overlap(one, other), (one.lines, other.lines)
    for frame in scene.frames:
        own = {id(part) for part in frame.part.boxes()}
        for box in scene.boxes:
            assert within(box, frame) if id(box.part) in own else not overlap(box, frame)
    for one, other in combinations(scene.frames, 2):
        assert within(one, other) or within(other, one) or not overlap(one, other)
    for box in scene.boxes:
        text_fits(box)
    for edge in scene.edges:
        goes_around(edge, scene.boxes)


def inside(scene: Scene) -> None:
    for shape in (*scene.boxes, *scene.frames):
        left, top, right, bottom = edges(shape)
        assert 0 <= left and 0 <= top and right <= scene.width and bottom <= scene.height
    for text in (shape for shape in scene.shapes() if isinstance(shape, Text)):
        width = columns(text.text) * text.size * WIDTH_OF_A_LETTER
        assert 0 <= text.x and text.x + width <= scene.width


def edges(shape: Box | Frame) -> tuple[float, float, float, float]:
    return shape.x, shape.y, shape.x + shape.width, shape.y + shape.height


def overlap(one: Box | Frame, other: Box | Frame) -> bool:
    a, b = edges(one), edges(other)
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def within(one: Box | Frame, other: Box | Frame) -> bool:
    a, b = edges(one), edges(other)
    return b[0] <= a[0] and b[1] <= a[1] and a[2] <= b[2] and a[3] <= b[3]


def text_fits(box: Box) -> None:
    below = box.y
    lines = [shape for shape in box.shapes() if isinstance(shape, Text)]
    assert len(lines) == len(box.lines)
    for line in lines:
        assert columns(line.text) * line.size * WIDTH_OF_A_LETTER <= box.width
        # The letters of a line are below the last one's.
        assert line.y - 0.75 * line.size >= below
        below = line.y + 0.2 * line.size
    assert below <= box.y + box.height


def points_of(edge: Edge) -> np.ndarray:
    """Points along an edge, close to each other."""
    found = []
    (last,), *pieces = edge.pieces()
    t = np.linspace(0, 1, 24)[:, None]
    for piece in pieces:
        corners = np.array([last, *piece])
        if len(piece) == 1:
            found.append((1 - t) * corners[0] + t * corners[1])
        else:
            weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
            found.append(sum(w * c for w, c in zip(weights, corners, strict=True)))
        last = piece[-1]
    return np.concatenate(found)


def goes_around(edge: Edge, boxes: list[Box]) -> None:
    points = points_of(edge)
    if not edge.again:
        assert (np.diff(points[:, 1]) >= -1e-6).all()  # never up
    for box in boxes:
        left, top, right, bottom = edges(box)
        x, y = points.T
        through = (left + 0.5 < x) & (x < right - 0.5) & (top + 0.5 < y) & (y < bottom - 0.5)
        assert not through.any(), [line.text for line in box.lines]


def links(drawing) -> set[tuple[str, str]]:
    """The edges between boxes, each by the first line of its boxes."""
    named = {id(box.part): box.lines[0].text for box in drawing._scene.boxes}
    return {
        (named[id(edge.ends[0])], named[id(edge.ends[1])])
        for edge in drawing._scene.edges
        if not edge.again
    }

"""A picture as a graph in Graphviz's language, for who would lay it out otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from tapegraph.drawing.parts import Part
from tapegraph.drawing.scene import Box, Frame, Scene
from tapegraph.drawing.themes import LIGHT


def dot(scene: Scene, root: Part) -> str:
    """Return a picture as DOT."""
    return "\n".join(_lines(scene, root)) + "\n"


def _lines(scene: Scene, root: Part) -> Iterator[str]:
    boxes = {id(box.part): box for box in scene.boxes}
    frames = {id(frame.part): frame for frame in scene.frames}
    number = {part: n for n, part in enumerate(boxes)}
    yield "digraph tapegraph {"
    yield f"  label={_quoted([scene.title, *scene.facts])};"
    yield '  labelloc="t";'
    yield '  node [shape="box", style="rounded,filled", fontname="monospace", fontsize="11"];'
    yield from _inside(root, boxes, frames, number, "  ")
    for edge in scene.edges:
        if edge.ends is not None:
            tail, head = (number[id(part)] for part in edge.ends)
            options = [f"headlabel={_quoted([edge.label])}"] if edge.label else []
            options += ['style="dashed"', 'constraint="false"'] if edge.again else []
            yield f"  n{tail} -> n{head} [{', '.join(options)}];"
    yield "}"


def _inside(
    frame: Part,
    boxes: dict[int, Box],
    frames: dict[int, Frame],
    number: dict[int, int],
    indent: str,
) -> Iterator[str]:
    for part in frame.parts:
        if part.is_frame:
            first = number[id(part.boxes()[0])]
            yield f"{indent}subgraph cluster_{first}_{len(indent)} {{"
            yield f"{indent}  label={_quoted([frames[id(part)].title])};"
            yield from _inside(part, boxes, frames, number, indent + "  ")
            yield f"{indent}}}"
        else:
            box = boxes[id(part)]
            fill, line = LIGHT[box.kind], LIGHT[f"{'result' if box.is_result else box.kind}-line"]
            label = _quoted([text.text for text in box.lines])
            colours = f'fillcolor="{fill}", color="{line}"'
            yield f"{indent}n{number[id(part)]} [label={label}, {colours}];"


def _quoted(lines: list[str]) -> str:
    """Return lines as one string in quotes, in which Graphviz finds no escape of its own."""
    safe = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    text = "\\n".join(" ".join(line.split()) for line in safe)
    return f'"{text}"'

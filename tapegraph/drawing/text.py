"""A picture as text: a line for each box, with the numbers of those that it reads."""

from __future__ import annotations

from collections.abc import Iterator

from tapegraph.drawing.parts import Part
from tapegraph.drawing.scene import Scene

_WIDTH = 110


def text(scene: Scene, root: Part) -> str:
    """Return a picture as text."""
    boxes = {id(box.part): box for box in scene.boxes}
    number = {id(part): n for n, part in enumerate(root.boxes(), 1)}
    titles = {id(frame.part): frame.title for frame in scene.frames}
    reads: dict[int, list[int]] = {}
    for edge in scene.edges:
        if edge.ends is not None and not edge.again:
            tail, head = edge.ends
            reads.setdefault(id(head), []).append(number[id(tail)])

    def lines(frame: Part, indent: str) -> Iterator[str]:
        for part in frame.parts:
            if part.is_frame:
                yield f"{indent}{titles[id(part)]}"
                yield from lines(part, indent + "    ")
                continue
            box = boxes[id(part)]
            of = "".join(f" [{n}]" for n in dict.fromkeys(reads.get(id(part), ())))
            whole = "  ".join(line.text for line in box.lines)
            line = f"{indent}{number[id(part)]:>3}  {whole}" + (f"  of{of}" if of else "")
            yield line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"

    return "\n".join([scene.title, *scene.facts, *lines(root, "")])

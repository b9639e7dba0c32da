"""`draw`: a picture of recorded operations, in a notebook, in a file, and as text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tapegraph.drawing.folding import Part
from tapegraph.drawing.layout import lay_out
from tapegraph.drawing.scene import LIGHT, Theme, colours, save_png, svg
from tapegraph.drawing.sketch import sketch
from tapegraph.errors import kind_of, message, path_of

__all__ = ["Drawing", "draw"]

# More boxes than that nobody can read.
_MOST = 1000
# A line of text, in characters.
_WIDTH = 110


class Drawing:
    """A picture; `draw` makes it, a notebook shows it as SVG, and ``print`` as text.

    :ivar title, size: Its title; width and height, in the pixels of a browser.
    :ivar boxes: The number of boxes after folding.
    """

    def __init__(self, what: object, names: object, boxes: int) -> None:
        self._folding, self._scene = lay_out(sketch(what, names), boxes)
        self.title = self._scene.title
        self.size = (round(self._scene.width), round(self._scene.height))
        self.boxes = len(self._scene.boxes)

    def svg(self, theme: Theme | None = None) -> str:
        """Return the picture as SVG.

        :param theme: "light", "dark", or by default both, for the reader's preference to choose.
        :raises ValueError: There is no such theme.
        """
        return "\n".join([*svg(self._scene, theme), ""])

    def dot(self) -> str:
        """Return the graph in Graphviz's language, as in a ``.dot`` file."""
        scene = self._scene
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
                    box = boxes[part]
                    border = LIGHT[f"{'result' if box.is_result else box.kind}-line"]
                    label = _quoted([line.text for line in box.lines])
                    paint = f'fillcolor="{LIGHT[box.kind]}", color="{border}"'
                    yield f"{indent}n{number[part]} [label={label}, {paint}];"

        begin = f"""digraph tapegraph {{
  label={_quoted([scene.title, *scene.facts])};
  labelloc="t";
  node [shape="box", style="rounded,filled", fontname="monospace", fontsize="11"];"""
        lines = [begin, *inside(self._folding.root, "  ")]
        for edge in scene.edges:
            tail, head = (number[part] for part in edge.ends)
            options = [f"headlabel={_quoted([edge.label])}"] if edge.label else []
            options += ['style="dashed"', 'constraint="false"'] if edge.again else []
            lines.append(f"  n{tail} -> n{head} [{', '.join(options)}];")
        return "\n".join([*lines, "}\n"])

    def save(
        self, path: str | os.PathLike[str], *, theme: Theme | None = None, scale: float = 2.0
    ) -> None:
        """Write the picture.

        :param path: Ends in ``.svg``, ``.png``, ``.dot`` or ``.txt``.
        :param theme: "light" or "dark"; by default an ``.svg`` has both and a ``.png`` is light.
        :param scale: The dots of a ``.png`` for each pixel of the `size`.
        :raises ValueError: The suffix or theme is unknown, or the scale is not positive.
        :raises ModuleNotFoundError: A ``.png`` needs Matplotlib, the extra ``draw``.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tg.draw(tg.param(2.0) * 3.0).save(f"{folder}/graph.svg")
        """
        if theme is not None:
            colours(theme)
        if not scale > 0:
            raise ValueError(message("save", f"scale={scale!r}", "a positive number"))
        writers: dict[str, Callable[[], str]] = {
            ".svg": lambda: self.svg(theme),
            ".dot": self.dot,
            ".txt": lambda: f"{self}\n",
        }
        name = path_of("save", path, 'Write tg.draw(x).save("graph.svg").')
        ending = Path(name).suffix.lower()
        if ending == ".png":
            save_png(self._scene, name, theme or "light", scale)
        elif ending in writers:
            Path(name).write_text(writers[ending](), encoding="utf-8")
        else:
            expected = "a path that ends in .svg, .png, .dot or .txt"
            raise ValueError(message("save", repr(name), expected))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg(), "text/plain": str(self)}

    def __str__(self) -> str:
        scene = self._scene
        boxes = {box.part: box for box in scene.boxes}
        number = {part: n for n, part in enumerate(boxes, 1)}
        reads: dict[Part, list[int]] = {}
        for edge in scene.edges:
            if not edge.again:
                tail, head = edge.ends
                reads.setdefault(head, []).append(number[tail])

        def inside(frame: Part, indent: str) -> Iterator[str]:
            for part in frame.parts:
                if part.is_frame:
                    yield f"{indent}{part.heading}"
                    yield from inside(part, indent + "    ")
                    continue
                of = "".join(f" [{n}]" for n in reads.get(part, ()))
                whole = "  ".join(line.text for line in boxes[part].lines)
                line = f"{indent}{number[part]:>3}  {whole}" + (f"  of{of}" if of else "")
                yield line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"

        return "\n".join([scene.title, *scene.facts, *inside(self._folding.root, "")])

    def __repr__(self) -> str:
        return f"<drawing of {self.title}: {self.boxes} boxes; save it, or print it>"


def _quoted(lines: list[str]) -> str:
    safe = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    text = "\\n".join(" ".join(line.split()) for line in safe)
    return f'"{text}"'


def draw(what: object, *, names: object = None, boxes: int = 24) -> Drawing:
    """Draw the operations behind a result: names, shapes, small values, and gradients.

    Nothing is computed. Parameters that one operation reads, loops, functions and chains of
    operations are folded as far as the number of boxes requires: a frame says how often its content
    repeats. A compiled step is drawn in regions: forward, backward, update.

    :param what: A result, ``tg.tape()``, or a function made by `compile` that was called.
    :param names: Names of tensors and Values, or a model, named as by `parameters`; by default the
        names from their creation. Variables' names are unknown.
    :param boxes: The approximate maximum of boxes, besides as many parameters and constants; fewer
        if long edges would cover the picture.
    :returns: The `Drawing`.
    :raises TypeError: It cannot be drawn, or ``names`` holds no tensor.
    :raises ValueError: ``boxes`` is not between 1 and 1,000.
    :raises RuntimeError: The result was cleared, the step was not called yet, or a compiled step
        draws inside itself.

    >>> x = tg.param(3.0, name="x")
    >>> y = tg.sin(x) * 2.0
    >>> y.backward()
    >>> print(tg.draw(y))
    result of mul
    2 operations, 1 parameter of 1 number, float64
      1  x  = 3  grad -1.98
      2  sin  = 0.141  of [1]
      3  mul(·, 2)  = 0.282  of [2]
    """
    whole = isinstance(boxes, int) and not isinstance(boxes, bool)
    if not whole or not 0 < boxes <= _MOST:
        raise ValueError(
            message("draw", f"boxes={kind_of(boxes)}", f"a number from 1 to {_MOST:,}")
        )
    return Drawing(what, names, boxes)

"""The text in boxes: names, operands, types, small values and gradients."""

from __future__ import annotations

import math
import os.path
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tapegraph.drawing.folding import MIXED, Folding, Part
from tapegraph.drawing.sketch import Vertex
from tapegraph.errors import escaped

# Of a line in a box and above the picture in characters, and of a box in lines; a monospaced
# character, in parts of the font's size, as wide as the widest of the fonts that are asked for.
_LONGEST, _WIDEST, _MOST_LINES = 42, 90, 12
CHARACTER = 0.61
# The styles of text in a box.
_NAME, _CALL, _TYPE, _VALUE, _GRADIENT, _NOTE = "name", "call", "type", "value", "slope", "note"
SIZES = {_NAME: 12.0, _CALL: 11.5, _TYPE: 10.5, _VALUE: 10.5, _GRADIENT: 10.5, _NOTE: 10.5}
# Operations whose operands may change places.
_COMMUTE = {"add", "mul", "maximum", "minimum", "sum"}
_SLOT = "·"  # where an edge comes in


class TextLine(NamedTuple):
    """A line of text and its style."""

    text: str
    role: str

    @property
    def width(self) -> float:
        return columns(self.text) * SIZES[self.role] * CHARACTER


def columns(text: str) -> int:
    """Return how many columns a monospaced text takes: two for a wide character."""
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


class Labels:
    """Writes the boxes of a folded sketch."""

    def __init__(self, folding: Folding) -> None:
        self._folding = folding
        self._vertices = folding.sketch.vertices
        self._alike = folding.alike
        dtypes = Counter(v.dtype for v in self._vertices if v.dtype and v.kind != "number")
        self._dtype = dtypes.most_common(1)[0][0] if dtypes else ""
        # A picture of nothing but single operations has room for all there is to say.
        self._is_full = all(self._vertices[i].kind == "number" for i in folding.inscribed)

    def header(self) -> tuple[str, list[str]]:
        sketch = self._folding.sketch
        trained = [v for v in self._vertices if v.kind == "param"]
        operations = sum(not v.is_leaf for v in self._vertices)
        what = "Value" if sketch.of_numbers else "parameter"
        counted = f"{_many(operations, 'operation')}, {_many(len(trained), what)}"
        if trained and not sketch.of_numbers:
            counted += f" of {_many(sum(math.prod(v.shape or ()) for v in trained), 'number')}"
        if self._dtype:
            counted += f", {self._dtype}"
        title, *facts = (short(text, _WIDEST) for text in (sketch.title, *sketch.facts, counted))
        return title, facts

    def lines(self, part: Part) -> list[TextLine]:
        often = f" × {part.times:,}" if part.times > 1 else ""
        last = self._vertices[part.members[-1]]
        if last.kind == "gradient":
            return self._of_backward(part, last)
        if part.title:  # a closed box: a function's name, or how many operations it holds
            counts = Counter[str]()
            for i in part.members:
                counts[self._vertices[i].op] += len(self._alike[i])
            names = " ".join(self._vertices[i].op for i in part.members)
            if len(names) > _LONGEST or part.title == MIXED:
                names = ", ".join(f"{count:,} {op}" for op, count in counts.most_common(3))
            total = f"{sum(counts.values()):,} " * (part.title == MIXED)
            lines = [_line(f"{total}{part.title}{often}", _NAME), _line(names, _NOTE)]
        elif last.is_leaf:
            lines = [_line(self._leaves_name(self._alike[part.members[0]]) + often, _NAME)]
        elif len(part.members) == 1:
            lines = [_line(self._call(part.members[0]) + often, _NAME)]
            if self._is_full and (attributes := _attributes(last)):
                lines.append(_line(attributes, _NOTE))
        else:
            lines = [_line(self._call(i), _CALL) for i in part.members]
            if len(lines) > _MOST_LINES:
                half = _MOST_LINES // 2
                lines[half:-half] = [_line(f"… {len(lines) - 2 * half:,} more", _NOTE)]
            if often:
                lines.insert(0, _line(often, _NAME))
        kinds = {self._type(self._vertices[i]) for i in self._alike[part.members[-1]]}
        kind = kinds.pop() if len(kinds) == 1 else "several shapes"
        if kind and kind != lines[0].text:
            lines.append(_line(f"→ {kind}" if len(part.members) > 1 else kind, _TYPE))
        lines += self._numbers(part)
        written = {self._vertices[i].writes for m in part.members for i in self._alike[m]}
        if writes := sorted(written - {""}):
            more = f" and {len(writes) - 1} more" if len(writes) > 1 else ""
            lines.append(_line(f"writes {writes[0]}{more}", _NOTE))
        return lines

    def places(self, i: int) -> dict[int, str]:
        vertex, inscribed = self._vertices[i], self._folding.inscribed
        places = {x: str(n) for n, x in enumerate(vertex.inputs, 1) if x not in inscribed}
        counts = vertex.op not in _COMMUTE and vertex.kind != "gradient" and len(places) > 1
        return places if counts else {}

    def details(self, part: Part) -> str:
        texts = []
        for i in part.members[:_MOST_LINES]:
            vertex = self._vertices[i]
            parts = [f"%{i} {vertex.op}", vertex.name, vertex.type, _attributes(vertex)]
            if vertex.value is not None:
                parts.append(f"= {_number(vertex.value)}")
            if vertex.where:
                parts.append(f"at {os.path.basename(vertex.where)}")
            texts.append("  ".join(filter(None, parts)))
        if len(part.members) > _MOST_LINES:
            texts.append(f"… {len(part.members) - _MOST_LINES:,} more")
        return "\n".join(texts)

    # Parts of it

    def _of_backward(self, part: Part, gradient: Vertex) -> list[TextLine]:
        sources = {self._vertices[i].source for m in part.members for i in self._alike[m]}
        y = self._vertices[gradient.inputs[0]]
        count = f"by {len(sources):,} tensors" if len(sources) > 1 else "by one tensor"
        title = part.title or y.name or y.op
        notes = (f"gradients of {y.name or y.op}", count)
        return [_line(title, _NAME), *(_line(note, _NOTE) for note in notes)]

    def _call(self, i: int) -> str:
        """Return an operation with the operands that are written into its box."""
        vertex = self._vertices[i]
        name = f"{vertex.name} = {vertex.op}" if vertex.name else vertex.op
        if self._folding.inscribed.isdisjoint(vertex.inputs):
            return name
        operands = [_SLOT] * len(vertex.inputs)
        for n, x in enumerate(vertex.inputs):
            if x in self._folding.inscribed:
                found = dict.fromkeys(self._vertices[j].inputs[n] for j in self._alike[i])
                operands[n] = self._leaves_name(list(found))
        if len(operands) > 4:
            operands[3:] = ["…"]
        return f"{name}({', '.join(operands)})"

    def _leaves_name(self, leaves: Sequence[int]) -> str:
        found = [self._vertices[i] for i in leaves]
        first, last = found[0], found[-1]
        if first.name and last.name:
            # As ``layers.0…3.w`` where the names differ in a number.
            if first.name == last.name:
                return first.name
            prefix = os.path.commonprefix([first.name, last.name]).rstrip("0123456789")
            rest, other = first.name[len(prefix) :], last.name[len(prefix) :]
            suffix = os.path.commonprefix([rest[::-1], other[::-1]])[::-1].lstrip("0123456789")
            one, two = rest.removesuffix(suffix), other.removesuffix(suffix)
            if (prefix or suffix) and one.isdigit() and two.isdigit():
                return f"{prefix}{one}…{two}{suffix}"
            return f"{first.name} … {last.name}"
        if self._is_full and len(found) == 1 and first.kind != "number":
            return first.op  # its number has another line
        if all(isinstance(v.value, (int, float)) for v in found):
            return _span([v.value for v in found])
        texts = {_number(v.value) for v in found}
        return (texts.pop() if len(texts) == 1 else "") or first.op

    def _type(self, vertex: Vertex) -> str:
        if vertex.shape is None:
            return ""
        if vertex.dtype == self._dtype:
            return "" if vertex.shape == () and vertex.value is not None else str(vertex.shape)
        return vertex.dtype if vertex.shape == () else vertex.type

    def _numbers(self, part: Part) -> list[TextLine]:
        alike = [self._vertices[i] for i in self._alike[part.members[-1]]]
        lines = []
        for role, sign, numbers in (
            (_VALUE, "= ", [v.value for v in alike]),
            (_GRADIENT, "grad ", [v.gradient for v in alike]),
        ):
            can_span = len(alike) == 1 or all(isinstance(n, float) for n in numbers)
            if can_span and None not in numbers:
                lines.append(_line(sign + _span(numbers), role))
        if len(alike) == 1 and alike[0].norm is not None:
            lines.append(_line(f"|grad| {_number(alike[0].norm)}", _GRADIENT))
        return lines


def _span(numbers: Sequence[float]) -> str:
    low, high = _number(min(numbers)), _number(max(numbers))
    return low if low == high else f"{low} … {high}"


def short(text: str, most: int = _LONGEST) -> str:
    text = escaped(" ".join(text.split()))
    return text if len(text) <= most else text[: most - 1] + "…"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _line(text: str, role: str) -> TextLine:
    return TextLine(short(text), role)


def _attributes(vertex: Vertex) -> str:
    shown = {k: v for k, v in vertex.attrs.items() if v is not False and v is not None}
    return ", ".join(f"{k}={v}" for k, v in shown.items() if len(repr(v)) <= _LONGEST)


def _number(value: object) -> str:
    """Return a number or a short list of numbers with three digits; ``""`` for None."""
    if value is None:
        return ""
    if isinstance(value, list):
        return f"[{', '.join(map(_number, value))}]"
    if isinstance(value, float):
        whole = math.isfinite(value) and value == int(value) and abs(value) < 1e6
        return str(int(value)) if whole else f"{value:.3g}"
    if isinstance(value, complex):
        return f"{value:.3g}"
    return str(value)

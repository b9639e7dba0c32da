"""What is written in a box: names, operands, types, small values and gradients."""

from __future__ import annotations

import math
import os.path
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tapegraph.drawing.sketch import MIXED, Folded, Part, Vertex

# Of a line in characters, and of a box in lines; a monospaced character, in parts of the font's
# size, as wide as the widest of the fonts that are asked for.
_LONGEST, _MOST_LINES = 42, 12
CHARACTER = 0.61
# How what is written in a box is set.
_NAME, _CALL, _TYPE, _VALUE, _GRADIENT, _NOTE = "name", "call", "type", "value", "slope", "note"
SIZES = {_NAME: 12.0, _CALL: 11.5, _TYPE: 10.5, _VALUE: 10.5, _GRADIENT: 10.5, _NOTE: 10.5}
# Operations whose operands may change places.
_COMMUTE = {"add", "mul", "maximum", "minimum", "sum"}
_SLOT = "·"  # where an edge comes in
# Control characters and halves of pairs, which no XML can hold.
_UNPRINTABLE = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TextLine(NamedTuple):
    """A line of text, and how it is set."""

    text: str
    role: str

    @property
    def width(self) -> float:
        """How wide it is, at most."""
        return columns(self.text) * SIZES[self.role] * CHARACTER


def columns(text: str) -> int:
    """Return how many columns a monospaced text takes: two for a wide character."""
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


class Labels:
    """Writes the boxes of a folded sketch."""

    def __init__(self, folded: Folded) -> None:
        self._folded = folded
        self._vertices = folded.sketch.vertices
        self._alike = folded.alike()
        dtypes = Counter(v.dtype for v in self._vertices if v.dtype and v.kind != "number")
        self.dtype = dtypes.most_common(1)[0][0] if dtypes else ""
        # A picture of nothing but single operations has room for all there is to say.
        self._is_full = all(self._vertices[i].kind == "number" for i in folded.inscribed)

    def lines(self, part: Part) -> list[TextLine]:
        """Return what stands in a box."""
        often = f" × {part.times:,}" if part.times > 1 else ""
        first, last = self._vertices[part.members[0]], self._vertices[part.members[-1]]
        if last.kind == "gradient":
            return self._of_backward(part)
        if part.title:
            lines = self._of_closed(part, often)
        elif first.is_leaf:
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
        if kind and not (first.is_leaf and kind == lines[0].text):
            lines.append(_line(f"→ {kind}" if len(part.members) > 1 else kind, _TYPE))
        lines += self._numbers(part)
        told = {self._vertices[i].writes for m in part.members for i in self._alike[m]}
        if writes := sorted(told - {""}):
            more = f" and {len(writes) - 1} more" if len(writes) > 1 else ""
            lines.append(_line(f"writes {writes[0]}{more}", _NOTE))
        return lines

    def places(self, i: int) -> dict[int, str]:
        """Return by operand how edges are told apart, where it counts which comes first."""
        vertex = self._vertices[i]
        drawn = [(n, x) for n, x in enumerate(vertex.inputs, 1) if x not in self._folded.inscribed]
        places = {x: str(n) for n, x in drawn}
        counts = vertex.op not in _COMMUTE and vertex.kind != "gradient" and len(places) > 1
        return places if counts else {}

    def details(self, part: Part) -> str:
        """Return all that is known of a box, for a tooltip."""
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

    def _of_backward(self, part: Part) -> list[TextLine]:
        alike = [i for m in part.members for i in self._alike[m]]
        sources = {self._vertices[i].inputs[1] for i in alike}
        y = self._vertices[self._vertices[alike[0]].inputs[0]]
        count = f"by {len(sources):,} tensors" if len(sources) > 1 else "by one tensor"
        return [
            _line(part.title or y.name or y.op, _NAME),
            _line(f"gradients of {y.name or y.op}", _NOTE),
            _line(count, _NOTE),
        ]

    def _of_closed(self, part: Part, often: str) -> list[TextLine]:
        """Return the lines of a box of many operations: what it is, and which they are."""
        counts = Counter[str]()
        for i in part.members:
            counts[self._vertices[i].op] += len(self._alike[i])
        total = f"{sum(counts.values()):,} operations"
        title = total if part.title == MIXED else part.title
        names = " ".join(self._vertices[i].op for i in part.members)
        if len(names) > _LONGEST or part.title == MIXED:
            names = ", ".join(f"{count:,} {op}" for op, count in counts.most_common(3))
        return [_line(title + often, _NAME), _line(names, _NOTE)]

    def _call(self, i: int) -> str:
        """Return an operation with the operands that are written into its box."""
        vertex = self._vertices[i]
        name = f"{vertex.name} = {vertex.op}" if vertex.name else vertex.op
        if not any(x in self._folded.inscribed for x in vertex.inputs):
            return name
        operands = []
        for n, x in enumerate(vertex.inputs):
            if x in self._folded.inscribed:
                found = dict.fromkeys(self._vertices[j].inputs[n] for j in self._alike[i])
                operands.append(self._leaves_name(list(found)))
            else:
                operands.append(_SLOT)
        if len(operands) > 4:
            operands[3:] = ["…"]
        return f"{name}({', '.join(operands)})"

    def _leaves_name(self, leaves: Sequence[int]) -> str:
        first, last = self._vertices[leaves[0]], self._vertices[leaves[-1]]
        if len(leaves) == 1 or first.name == last.name:
            if first.name:
                return first.name
            if len(leaves) == 1:
                number = _number(first.value) if not self._is_full or first.kind == "number" else ""
                return number or first.op
        if first.name and last.name:
            return _range(first.name, last.name)
        values = [self._vertices[i].value for i in leaves]
        if all(isinstance(value, (int, float)) for value in values):
            return _span(values)
        texts = set(map(_number, values))
        return (texts.pop() if len(texts) == 1 else "") or first.op

    def _type(self, vertex: Vertex) -> str:
        if vertex.shape is None:
            return ""
        if vertex.dtype == self.dtype:
            return "" if vertex.shape == () and vertex.value is not None else str(vertex.shape)
        return vertex.dtype if vertex.shape == () else vertex.type

    def _numbers(self, part: Part) -> list[TextLine]:
        """Return the lines of values and gradients, of what stands for many from least to most."""
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
    """Return the least and the largest of some numbers."""
    low, high = _number(min(numbers)), _number(max(numbers))
    return low if low == high else f"{low} … {high}"


def _range(first: str, last: str) -> str:
    """Return the names from one to another: ``layers.0…3.w`` where they differ in a number."""
    prefix = os.path.commonprefix([first, last]).rstrip("0123456789")
    rest, other = first[len(prefix) :], last[len(prefix) :]
    suffix = os.path.commonprefix([rest[::-1], other[::-1]])[::-1].lstrip("0123456789")
    one, two = rest.removesuffix(suffix), other.removesuffix(suffix)
    if (prefix or suffix) and one.isdigit() and two.isdigit():
        return f"{prefix}{one}…{two}{suffix}"
    return f"{first} … {last}"


def printable(text: str) -> str:
    """Return a text without what no XML can hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def short(text: str, most: int = _LONGEST) -> str:
    """Return a text in one line, and not so long that it would make the picture wide."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(text: str, role: str) -> TextLine:
    return TextLine(short(text), role)


def _attributes(vertex: Vertex) -> str:
    told = {k: v for k, v in vertex.attrs.items() if v is not False and v is not None}
    return ", ".join(f"{k}={v}" for k, v in told.items() if len(repr(v)) <= _LONGEST)


def _number(value: Any) -> str:
    """Return a number or a short list of numbers with three digits; ``""`` of None."""
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

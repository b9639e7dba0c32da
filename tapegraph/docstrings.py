"""What the docstrings of operations share: tables of sentences, which complete them at import.

An author writes what is special about a function: its sentence, formula and example, and the
entries of Parameters, Returns and Raises that no other has. `completed` adds what is missing from
the signature and the tables below, so that `help` shows a whole docstring in numpydoc's form.

A parameter is of the kind that is usual for its name, unless an entry names another (``x : angles``
and no more), or has a type and a text of its own. One that has a text alone keeps the usual type.
Results and errors are named in the same way, by a line of their own: ``like x``, ``no SciPy``.
"""

from __future__ import annotations

import functools
from inspect import CO_VARARGS
from types import CodeType
from typing import Any

ARRAY = "Tensor or array_like"
NUMBER = "Tensor, array_like or number"

# By kind: the type and the sentence of a parameter.
PARAMETERS = {
    "UPLO": ('{"L", "U"}', "The triangle to read, lower or upper."),
    "an array": (ARRAY, "Any shape."),
    "an array of any dtype": (ARRAY, "Any shape and dtype."),
    "an array of floats": (ARRAY, "Any shape, float32 or float64."),
    "an axis": ("int", "The axis to work along."),
    "an axis or none": (
        "int or None",
        "The axis to work along; None means all elements in one axis, row by row.",
    ),
    "angles": (NUMBER, "Angles in radians, any shape, float32 or float64."),
    "at least one axis": (ARRAY, "At least one axis."),
    "at least two axes": (ARRAY, "At least two axes."),
    "axes": ("int or tuple of int, optional", "The axes to reduce; all where not given."),
    "images": (f"{ARRAY}, shape (n, c, h, w)", "Images."),
    "indices_or_sections": ("int or sequence of int", "As for `split`."),
    "keepdims": ("bool", "Keep those axes with length 1."),
    "matrices": (f"{ARRAY}, shape (..., m, n)", "A matrix or a stack of them."),
    "a model": (ARRAY, "What to take shape and dtype from; no gradient flows to it."),
    "new dtype": ("dtype, optional", "Another element type."),
    "new shape": ("int or tuple of int, optional", "Another shape."),
    "numbers": (NUMBER, "Any shape, float32 or float64."),
    "offset": ("int", "How far the diagonal is above the main one; below where negative."),
    "operands": (NUMBER, "Operands that broadcast together."),
    "square matrices": (f"{ARRAY}, shape (..., n, n)", "A matrix or a stack of them."),
    "symmetric matrices": (
        f"{ARRAY}, shape (..., n, n)",
        "Symmetric; a matrix or a stack of them.",
    ),
}

# The usual kind of a parameter, by its name, with the family or the annotation where these decide.
# A name that is not here is its own kind.
USUAL = {
    "axis: Axes": "axes",
    "axis: SupportsIndex": "an axis",
    "axis: int": "an axis",
    "axis: SupportsIndex | None": "an axis or none",
    "dtype: npt.DTypeLike | None": "new dtype",
    "elementwise.a": "operands",
    "elementwise.b": "operands",
    "elementwise.x": "numbers",
    "index.x": "an array",
    "linalg.a": "square matrices",
    "nn.x": "images",
    "reduce.x": "an array of floats",
    "shape.x": "an array",
    "shape: Shape | None": "new shape",
    "special.a": "operands",
    "special.b": "operands",
    "special.x": "numbers",
}

# By kind: the type and the sentence of a result. Lists and tuples have the annotation for a kind.
RETURNS = {
    "Tensor | tuple[Tensor, ...]": ("Tensor or tuple of Tensor", "One where one is given."),
    "a constant": ("Tensor", "A constant."),
    "broadcast": ("Tensor", "Of the broadcast shape and NumPy's result dtype."),
    "joined": ("Tensor", "The joined array, of NumPy's result dtype."),
    "like x": ("Tensor", "Of ``x``'s shape and dtype."),
    "list[Tensor]": ("list of Tensor", "The parts, in order."),
    "of a's shape": ("Tensor", "Of ``a``'s shape."),
    "of x's dtype": ("Tensor", "Of ``x``'s dtype."),
    "of x's shape": ("Tensor", "Of ``x``'s shape."),
    "permuted": ("Tensor", "The permuted array."),
    "without NaN": ("Tensor", "Of ``x``'s dtype; no gradient flows to NaNs."),
}

# By kind: an exception and its cause.
RAISES = {
    "axes out of range": ("ValueError", "An axis is out of range or repeated."),
    "axis out of range": ("ValueError", "The axis is out of range."),
    "no SciPy": ("ImportError", "SciPy is not installed."),
    "no axis": ("ValueError", "The array is 0-d."),
    "no broadcast": ("ValueError", "The shapes do not broadcast."),
    "no such dtype": ("TypeError", "The dtype is not bool, integer, float32 or float64."),
    "not square": ("numpy.linalg.LinAlgError", "A matrix is not square."),
    "nothing to choose from": (
        "ValueError",
        "An axis is out of range or repeated, or there is nothing to choose from.",
    ),
    "unequal shapes": ("ValueError", "No array is given, or the shapes differ."),
}

# The result that a function of such a first parameter has, where nothing is said.
RESULT_OF = {
    "a model": "a constant",
    "an array of floats": "of x's dtype",
    "angles": "like x",
    "numbers": "like x",
    "operands": "broadcast",
}

# The error that a parameter of such a kind brings, where no other of its class is named.
ERROR_OF = {
    "an axis": "axis out of range",
    "an axis or none": "axis out of range",
    "axes": "axes out of range",
    "new dtype": "no such dtype",
    "operands": "no broadcast",
    "square matrices": "not square",
    "symmetric matrices": "not square",
}

Row = tuple[str, str]  # a type or an exception, and the text below it


def completed(function: Any) -> str | None:
    """Return a function's docstring with the sections that it shares with others."""
    if function.__doc__ is None:  # python -OO
        return None
    if ">>> import tapegraph as tg" in function.__doc__:  # whole as it stands
        return str(function.__doc__)
    text, prompt, example = _dedented(function.__doc__).partition("\n\n>>> ")
    summary, own = text, ""
    if "\n---" in text:
        summary, _, title = text[: text.index("\n---")].rpartition("\n\n")
        own = title + text[text.index("\n---") :]
    family = function.__module__.rpartition(".")[2]
    annotations = tuple(function.__annotations__.items())
    whole = summary + _sections(family, _names(function.__code__), annotations, own)
    if prompt:
        whole += "\n\nExamples\n--------\n" + _runnable(f">>> {example}")
    return whole


def _dedented(doc: str) -> str:
    """Take off the margin, which the line of the closing quotes shows; Python 3.13 has done so."""
    text, newline, margin = doc.rpartition("\n")
    return text.replace(newline + margin, "\n") if newline and not margin.strip() else doc


def _runnable(example: str) -> str:
    """Import the library in an example, after what else it imports."""
    lines = example.split("\n")
    place = next(i for i, line in enumerate(lines) if not line.startswith(">>> import "))
    return "\n".join((*lines[:place], ">>> import tapegraph as tg", *lines[place:]))


def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names in a function's signature, in order."""
    positional, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    rest = (f"*{names[named]}",) if code.co_flags & CO_VARARGS else ()
    return (*names[:positional], *rest, *names[positional:named])


@functools.cache  # most functions of a family differ in nothing here
def _sections(
    family: str, names: tuple[str, ...], annotations: tuple[tuple[str, str], ...], text: str
) -> str:
    """Return all sections but the examples, given those that are written."""
    types = dict(annotations)
    text, _, notes = text.partition("Notes\n-----\n")
    own = _rows(text)
    kinds, parameters = _parameters(family, names, types, own.get("Parameters", []))
    sections = {
        "Parameters": parameters,
        "Returns": _results(kinds, types, own.get("Returns", [])),
        "Raises": _errors(kinds, own.get("Raises", [])),
        "Notes": [(notes, "")] if notes else [],
    }
    lines = [""]
    for title, rows in sections.items():
        if rows:
            lines += ["", title, "-" * len(title)]
            lines += [f"{head}\n    {below}" if below else head for head, below in rows]
    return "\n".join(lines)


def _rows(text: str) -> dict[str, list[Row]]:
    """Read the sections that are written: each line, and what is indented below it."""
    sections: dict[str, list[Row]] = {}
    rows: list[Row] = []
    for line in text.split("\n"):
        if line.startswith(" "):
            head, below = rows[-1]
            rows[-1] = head, f"{below}\n{line}" if below else line.strip()
        elif line.startswith("---"):
            title, _ = rows.pop()
            rows = sections[title] = []
        elif line:
            rows.append((line, ""))
    return sections


def _parameters(
    family: str, names: tuple[str, ...], types: dict[str, str], written: list[Row]
) -> tuple[list[str], list[Row]]:
    """Return the kind of each parameter, and the entries of all: equal neighbours share one."""
    own = {}
    for head, text in written:
        parts, _, label = head.partition(" : ")
        own.update(dict.fromkeys(parts.split(", "), (label, text)))
    kinds: list[str] = []
    entries: list[Row] = []
    last = None
    for name in names:
        kind = USUAL.get(f"{family}.{name}") or USUAL.get(f"{name}: {types.get(name)}", name)
        label, text = own.get(name, ("", ""))
        if label in PARAMETERS:
            kind, label = label, ""
        if label:  # what has a type of its own is of no kind
            kind = ""
        else:
            label, sentence = PARAMETERS.get(kind, ("", ""))
            text = text or sentence
        kinds.append(kind)
        if last == (label, text):
            name = f"{entries.pop()[0].partition(' : ')[0]}, {name}"
        entries.append((f"{name} : {label}" if label else name, text))
        last = label, text
    return kinds, entries


def _results(kinds: list[str], types: dict[str, str], own: list[Row]) -> list[Row]:
    """Return the entries of what a function returns: its own, or what is usual."""
    if own:
        return [RETURNS.get(head, (head, text)) for head, text in own]
    usual = (types.get("return"), *(RESULT_OF.get(kind) for kind in kinds[:1]))
    return [RETURNS[kind] for kind in usual if kind in RETURNS]


def _errors(kinds: list[str], own: list[Row]) -> list[Row]:
    """Return the entries of what a function raises: its own win over those of one exception."""
    entries = [RAISES.get(head, (head, text)) for head, text in own]
    raised = {error for error, _ in entries}
    usual = dict.fromkeys(RAISES[ERROR_OF[kind]] for kind in kinds if kind in ERROR_OF)
    return sorted([*entries, *(row for row in usual if row[0] not in raised)])

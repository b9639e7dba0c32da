"""Calls as Python: their names and their arguments."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegraph.fallback.plan.chains import SAME, Blocks
from tapegraph.fallback.plan.ir import ITEM, METHOD, Call, Constant, Held, held_in
from tapegraph.fallback.plan.memory import LARGE
from tapegraph.typed import Array

# Their result's place may be a last operand, which is quicker than by keyword; of np.maximum and
# np.minimum NumPy wants the keyword.
POSITIONAL = {
    function
    for function in vars(np).values()
    if isinstance(function, np.ufunc) and function not in (np.maximum, np.minimum)
}


class Lines:
    """Writes calls, one a line.

    Attributes
    ----------
    names : dict of str to object
        What the text refers to.
    buffers : dict of int to ndarray
        What a value is written into, by id.
    over : dict of int to Held
        The operand that a value is written over, by id.
    """

    def __init__(self, *taken: str, within: Lines | None = None) -> None:
        self.names: dict[str, Any] = {} if within is None else within.names
        self.buffers: dict[int, Array] = {}
        self.over: dict[int, Held] = {}
        self._within = within
        self._given: set[int] = set()  # the values whose memory is a parameter, by id
        self._taken: set[str] = set(taken)
        self._numbers: dict[str, Iterator[int]] = {}
        self._of: dict[int, str] = {}
        self._arrays: dict[tuple[str, Any], Constant] = {}

    def line(self, call: Call) -> str:
        """Write a call."""
        targets = ", ".join(self.name(held) for held in call.results)
        args = [self.tree(arg) for arg in self._numbers_as_arrays(call)]
        options = [f"{k}={self.tree(v)}" for k, v in call.kwargs.items()]
        if call.form == ITEM:
            return f"{targets} = {args[0]}[{self._key(call.args[1])}]"
        if call.form == METHOD:
            return f"{targets} = {args[0]}.{call.name}({', '.join([*args[1:], *options])})"
        (result,) = call.results if len(call.results) == 1 else (None,)
        into, target = "", f"{targets} = "
        if id(result) in self._given:
            into, target = targets, ""
        elif id(result) in self.buffers:
            into = self.known(self.buffers[id(result)], "b")
        elif id(result) in self.over:
            into = self.name(self.over[id(result)])
        elif call.moulded:
            into = f"{self.known(np.empty_like, 'empty_like')}({self.mould(call.results[0])})"
        if into:
            positional = not options and call.function in POSITIONAL
            (args if positional else options).append(into if positional else f"out={into}")
        return f"{target}{self._function(call)}({', '.join([*args, *options])})"

    def function(self, blocks: Blocks, name: str) -> str:
        """Write a chain as a function of one block: what is cut, read and then made, and the rest.

        What it makes is written into what it is given.
        """
        inside = Lines(within=self)
        inside.buffers = blocks.scratch
        inside._given = {id(found) for _, found, _ in blocks.made}
        cut = [leaf for _, leaf, kind in blocks.given if kind != SAME]
        same = [leaf for _, leaf, kind in blocks.given if kind == SAME]
        names = map(inside.name, [*cut, *(found for _, found, _ in blocks.made), *same])
        text = [f"def {name}({', '.join(names)}):  # {blocks.rows} rows"]
        for call in blocks.lines:
            place = f"  # {call.place}" if call.place else ""
            text.append(f"    {inside.line(call)}{place}")
        return "\n".join(text) + "\n"

    def _numbers_as_arrays(self, call: Call) -> tuple[Any, ...]:
        """Return what a call is given, with numbers in the dtype that they would be taken as.

        On a small array NumPy takes longer to make an array of a number than for all the rest.
        """
        arrays = [held.value for held in call.reads]
        dtypes = {getattr(a, "dtype", None) for a in arrays}
        size = max((a.size for a in arrays if isinstance(a, np.ndarray)), default=LARGE)
        if not call.elementwise or size >= LARGE or len(dtypes) > 1 or arrays[0].dtype.kind != "f":
            return call.args
        (dtype,) = dtypes
        result = call.results[0].value.dtype
        if result.kind == "f" and result != dtype:  # SciPy's take a Python number as float64
            return call.args
        return tuple(self._number(x, dtype) if type(x) in (int, float) else x for x in call.args)

    def _number(self, x: float, dtype: Any) -> Constant:
        if self._within is not None:
            return self._within._number(x, dtype)
        key = (repr(x), dtype)
        if key not in self._arrays:
            held = self._arrays[key] = Constant(np.array(x, dtype))
            hint = "n" + re.sub(r"\W", "_", repr(x))
            self._of[id(held)] = self._of[id(held.value)] = name = self._unused(hint)
            self.names[name] = held.value
        return self._arrays[key]

    # Names

    def name(self, held: Held) -> str:
        """Return the name of a value."""
        name = self._of.get(id(held))
        if name is None:
            if isinstance(held, Constant):
                name = self.known(held.value, "c")
            else:
                name = self._unused(held.hint)
            self._of[id(held)] = name
        return name

    def known(self, value: Any, hint: str) -> str:
        """Return the name of something that the plan holds."""
        if self._within is not None:
            return self._within.known(value, hint)
        name = self._of.get(id(value))
        if name is None:
            name = self._of[id(value)] = self._unused(hint)
            self.names[name] = value
        return name

    def _unused(self, hint: str) -> str:
        """Return a name like the hint; short ones are numbered."""
        hint = f"{hint}_" if keyword.iskeyword(hint) else hint
        if len(hint) > 1 and hint not in self._taken:
            name = hint
        else:
            start = f"{hint}_" if len(hint) > 1 else hint
            numbers = self._numbers.setdefault(start, itertools.count())
            name = next(n for i in numbers if (n := f"{start}{i}") not in self._taken)
        self._taken.add(name)
        return name

    def _function(self, call: Call) -> str:
        owner, _, method = call.name.partition(".")
        if method:
            return f"{self.known(call.function.__self__, owner)}.{method}"
        return self.known(call.function, owner)

    def mould(self, held: Held) -> str:
        """Return the name of an array of a value's type and layout."""
        return self.known(np.empty_like(held.value), "mould")

    # Arguments

    def tree(self, value: Any) -> str:
        """Write an argument."""
        if isinstance(value, Held):
            return self.name(value)
        if type(value) in (tuple, list):
            inner = ", ".join(map(self.tree, value))
            if type(value) is list:
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if type(value) is slice:
            return f"slice({', '.join(map(self.tree, (value.start, value.stop, value.step)))})"
        text = repr(value)
        if type(value) in (bool, int, str, type(None), type(...)):
            return text
        if type(value) is float and text[-1].isdigit():
            return text
        if isinstance(value, np.dtype):
            return repr(value.name)
        return self.known(value, "k")

    def _key(self, key: Any) -> str:
        parts = key if type(key) is tuple else (key,)
        texts = []
        for part in parts:
            if type(part) is slice and not list(held_in(part)):
                limits = [part.start, part.stop] + ([part.step] if part.step is not None else [])
                texts.append(":".join("" if x is None else repr(x) for x in limits))
            else:
                texts.append("..." if part is ... else self.tree(part))
        return ", ".join(texts) if texts else "()"

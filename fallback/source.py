"""A plan as Python: one call a line, with the user's line beside it."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import has_nan
from tapegraph.fallback.calls import (
    ITEM,
    METHOD,
    Call,
    Check,
    Constant,
    Held,
    Leaf,
    held_in,
    mapped,
)
from tapegraph.fallback.memory import Buffers, last_reads

# Their result's place may be a last operand, which is quicker than by keyword; of np.maximum and
# np.minimum NumPy wants the keyword.
POSITIONAL = {
    function
    for function in vars(np).values()
    if isinstance(function, np.ufunc) and function not in (np.maximum, np.minimum)
}
# From this many bytes on memory is worth giving back before the plan has ended.
LARGE = 1 << 14


class Source:
    """Writes a plan.

    Parameters
    ----------
    lines : list of Call
        The plan.
    leaves : list of Held
        What it is given.
    outputs, updates : list of Held
        What it gives.

    Attributes
    ----------
    names : dict of str to object
        What the text refers to.
    text : str
        A function ``plan``.
    nbytes : int
        The memory of its buffers.
    """

    def __init__(
        self,
        lines: list[Call],
        leaves: Sequence[Held],
        outputs: Sequence[Held],
        updates: Sequence[Held],
    ) -> None:
        self.names: dict[str, Any] = {}
        self._taken: set[str] = {"plan"}
        self._numbers: dict[str, Iterator[int]] = {}
        self._of: dict[int, str] = {}
        self._arrays: dict[tuple[str, Any], Constant] = {}
        self._fixed: set[int] = set()  # the views of buffers, by id
        self._whole: dict[int, Constant] = {}  # buffers, as what views are taken of
        self._buffers = Buffers(lines, [*outputs, *updates])
        self.nbytes = self._buffers.nbytes
        parameters = ", ".join(self._name(held) for held in leaves)
        dropped = self._dropped(lines, {id(r) for h in (*outputs, *updates) for r in h.roots})
        once, body = [], [f"def plan({parameters}):"]
        for number, call in enumerate(lines):
            place = f"  # {call.place}" if call.place else ""
            if self._is_fixed_view(call):
                once.append(self._fixed_view(call) + place)
                continue
            text = self._check(call) if isinstance(call, Check) else self._line(call)
            body.append(f"    {text}{place}")
            gone = [self._name(held) for held in dropped.get(number, ())]
            if gone:
                body.append(f"    del {', '.join(gone)}")
        results = [", ".join(map(self._result, part)) for part in (outputs, updates)]
        body.append(f"    return [{results[0]}], [{results[1]}]")
        self.text = "\n".join([*once, *body]) + "\n"

    # Lines

    def _is_fixed_view(self, call: Call) -> bool:
        """Tell whether a call only looks at a buffer, in the same way in every run."""
        if call.into or call.kept or len(call.reads) != 1:
            return False
        (operand,), (result,) = call.reads, call.results
        if id(operand) not in self._buffers.of and id(operand) not in self._fixed:
            return False
        return result.roots == operand.roots

    def _fixed_view(self, call: Call) -> str:
        """Write a view as one of the buffer that the plan will fill."""
        buffer = self._buffers.of.get(id(call.reads[0]))
        args = call.args
        if buffer is not None:
            self._known(buffer, "b")
            held = self._whole.setdefault(id(buffer), Constant(buffer))
            args = mapped(lambda x: held if isinstance(x, Held) else x, args)
        view = Call(call.function, call.name, args, call.kwargs, form=call.form)
        view.results = call.results
        self._fixed.add(id(call.results[0]))
        return self._line(view)

    def _line(self, call: Call) -> str:
        targets = ", ".join(self._name(held) for held in call.results)
        args = [self._tree(arg) for arg in self._numbers_as_arrays(call)]
        options = [f"{k}={self._tree(v)}" for k, v in call.kwargs.items()]
        if call.form == ITEM:
            return f"{targets} = {args[0]}[{self._key(call.args[1])}]"
        if call.form == METHOD:
            return f"{targets} = {args[0]}.{call.name}({', '.join([*args[1:], *options])})"
        buffer = self._buffers.of.get(id(call.results[0]))
        if buffer is not None:
            into = self._known(buffer, "b")
        elif call.moulded:
            into = f"{self._known(np.empty_like, 'empty_like')}({self._mould(call.results[0])})"
        if buffer is not None or call.moulded:
            positional = not options and call.function in POSITIONAL
            (args if positional else options).append(into if positional else f"out={into}")
        return f"{targets} = {self._function(call)}({', '.join([*args, *options])})"

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
        key = (repr(x), dtype)
        if key not in self._arrays:
            held = self._arrays[key] = Constant(np.array(x, dtype))
            hint = "n" + re.sub(r"\W", "_", repr(x))
            self._of[id(held)] = self._of[id(held.value)] = name = self._unused(hint)
            self.names[name] = held.value
        return self._arrays[key]

    def _check(self, call: Check) -> str:
        targets = ", ".join(self._name(held) for held in call.results)
        look, again = self._known(has_nan, "has_nan"), self._function(call)
        names = ", ".join(self._name(held) for held in call.results)
        test = f"{look}({names})" if len(call.results) == 1 else f"any(map({look}, [{names}]))"
        given = ", ".join(self._tree(arg) for arg in call.args)
        return (
            f"{targets} = {', '.join(self._name(held) for held in call.grads)}\n"
            f"    if {test}:\n"
            f"        {targets}{',' * (len(call.results) == 1)} = {again}({given})"
        )

    def _dropped(self, lines: list[Call], outside: set[int]) -> dict[int, list[Held]]:
        """Return the names to drop after each line, so that large memory is free again."""
        last = last_reads(lines)
        dropped: dict[int, list[Held]] = {}
        for call in lines:
            for held in call.results:
                if isinstance(held.value, (np.generic, int)) or id(held) in self._buffers.of:
                    continue
                large = any(getattr(r.value, "nbytes", LARGE) >= LARGE for r in held.roots)
                made = all(
                    not isinstance(r, (Leaf, Constant)) and id(r) not in self._buffers.of
                    for r in held.roots
                )
                if large and made and not any(id(r) in outside for r in held.roots):
                    line = max(last[id(r)] for r in held.roots)
                    dropped.setdefault(line, []).append(held)
        return dropped

    # Names

    def _name(self, held: Held) -> str:
        name = self._of.get(id(held))
        if name is None:
            if isinstance(held, Constant):
                name = self._known(held.value, "c")
            else:
                name = self._unused(held.hint)
            self._of[id(held)] = name
        return name

    def _known(self, value: Any, hint: str) -> str:
        """Return the name of something that the plan holds."""
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
            return f"{self._known(call.function.__self__, owner)}.{method}"
        return self._known(call.function, owner)

    def _mould(self, held: Held) -> str:
        return self._known(np.empty_like(held.value), "mould")

    # Arguments

    def _tree(self, value: Any) -> str:
        if isinstance(value, Held):
            return self._name(value)
        if type(value) in (tuple, list):
            inner = ", ".join(map(self._tree, value))
            if type(value) is list:
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if type(value) is slice:
            return f"slice({', '.join(map(self._tree, (value.start, value.stop, value.step)))})"
        text = repr(value)
        if type(value) in (bool, int, str, type(None), type(...)):
            return text
        if type(value) is float and text[-1].isdigit():
            return text
        if isinstance(value, np.dtype):
            return repr(value.name)
        return self._known(value, "k")

    def _key(self, key: Any) -> str:
        parts = key if type(key) is tuple else (key,)
        texts = []
        for part in parts:
            if type(part) is slice and not list(held_in(part)):
                limits = [part.start, part.stop] + ([part.step] if part.step is not None else [])
                texts.append(":".join("" if x is None else repr(x) for x in limits))
            else:
                texts.append("..." if part is ... else self._tree(part))
        return ", ".join(texts) if texts else "()"

    def _result(self, held: Held) -> str:
        """Return what a result is: of what the plan holds itself, a copy."""
        of_the_plan = any(isinstance(root, Constant) for root in held.roots)
        return f"{self._name(held)}.copy()" if of_the_plan else self._name(held)

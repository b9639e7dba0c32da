"""A plan as Python: one call a line, with the user's line beside it."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from tapegraph.arrays.row_sparse import has_nan
from tapegraph.fallback.plan.chains import SAME, Blocks, inner
from tapegraph.fallback.plan.ir import Call, Check, Constant, Held, Leaf, mapped, root_ids
from tapegraph.fallback.plan.lines import Lines
from tapegraph.fallback.plan.memory import LARGE, Buffers, last_reads, written_over

# A plan of more lines is a generator, whose values lie on the heap. Thousands of them would fill
# the interpreter's stack, and where a chunk of that ends, a call of Python maps memory every time.
LONG = 256


class Source(Lines):
    """Writes a plan.

    Parameters
    ----------
    lines : list of Call
        The plan.
    leaves : list of Held
        What it is given.
    outputs, updates : list of Held
        What it gives.
    scratch : int
        The memory that its blocks work in.

    Attributes
    ----------
    names : dict of str to object
        What the text refers to.
    text : str
        A function ``plan``.
    long : bool
        It is a generator, which gives the results as its first value.
    nbytes : int
        The memory of its buffers.
    chains : int
        How many chains it makes block by block.
    """

    def __init__(
        self,
        lines: list[Call],
        leaves: Sequence[Held],
        outputs: Sequence[Held],
        updates: Sequence[Held],
        scratch: int,
    ) -> None:
        super().__init__("plan")
        self._fixed: set[int] = set()  # the views of buffers, by id
        self._rows: dict[str, str] = {}  # the names of buffers cut into blocks
        self._whole: dict[int, Constant] = {}  # buffers, as what views are taken of
        self.over = written_over(lines, [*outputs, *updates])
        buffers = Buffers(lines, [*outputs, *updates, *self.over.values()])
        self.buffers, self.nbytes = buffers.of, buffers.nbytes + scratch
        self.chains = sum(isinstance(call, Blocks) for call in lines)
        parameters = ", ".join(self.name(held) for held in leaves)
        dropped = self._dropped(lines, root_ids((*outputs, *updates)))
        once, body = [], [f"def plan({parameters}):"]
        for number, call in enumerate(lines):
            place = f"  # {call.place}" if call.place else ""
            if self._is_fixed_view(call):
                once.append(self._fixed_view(call) + place)
                continue
            if isinstance(call, Blocks):
                texts = self._blocks(call, once)
            else:
                texts = [self._check(call) if isinstance(call, Check) else self.line(call)]
            body.extend(f"    {text}{place}" for text in texts)
            gone = [self.name(held) for held in dropped.get(number, ())]
            if gone:
                body.append(f"    del {', '.join(gone)}")
        results = [", ".join(map(self._result, part)) for part in (outputs, updates)]
        self.long = len(body) > LONG
        word = "yield" if self.long else "return"
        body.append(f"    {word} [{results[0]}], [{results[1]}]")
        self.text = "\n".join([*once, *body]) + "\n"

    # Lines

    def _is_fixed_view(self, call: Call) -> bool:
        """Tell whether a call only looks at a buffer, in the same way in every run."""
        if call.into or call.kept or len(call.reads) != 1:
            return False
        (operand,), (result,) = call.reads, call.results
        if id(operand) not in self.buffers and id(operand) not in self._fixed:
            return False
        return result.roots == operand.roots

    def _fixed_view(self, call: Call) -> str:
        """Write a view as one of the buffer that the plan will fill."""
        buffer = self.buffers.get(id(call.reads[0]))
        args = call.args
        if buffer is not None:
            self.known(buffer, "b")
            held = self._whole.setdefault(id(buffer), Constant(buffer))
            args = mapped(lambda x: held if isinstance(x, Held) else x, args)
        view = Call(call.function, call.name, args, call.kwargs, form=call.form)
        view.results = call.results
        self._fixed.add(id(call.results[0]))
        return self.line(view)

    def _blocks(self, blocks: Blocks, once: list[str]) -> list[str]:
        """Write a chain as a function, and the loop that calls it; or add to what is done once."""
        name = self._unused("block")
        once.append(self.function(blocks, name))
        lines, cut = [], []
        for held in blocks.results:
            if id(held) in self.buffers:
                place = self.known(self.buffers[id(held)], "b")
            elif id(held) in self.over:
                place = self.name(self.over[id(held)])
            else:
                place = f"{self.known(np.empty_like, 'empty_like')}({self.mould(held)})"
            lines.append(f"{self.name(held)} = {place}")
        kinds = [(held, kind) for held, _, kind in (*blocks.given, *blocks.made)]
        for held, kind in kinds:
            if kind == SAME:
                continue
            shape = blocks.shape_of(kind)
            if id(held) in self.buffers or id(held) in self._fixed or isinstance(held, Constant):
                whole = self.name(held)
                if id(held) in self.buffers:
                    whole = self.known(self.buffers[id(held)], "b")
                text = f"[*{whole}.reshape({shape})]"
                if text not in self._rows:
                    self._rows[text] = self._unused("rows_")
                    once.append(f"{self._rows[text]} = {text}")
                cut.append(self._rows[text])
            else:
                cut.append(f"{self.name(held)}.reshape({shape})")
        same = [self._same(held) for held, kind in kinds if kind == SAME]
        lines.append(f"for part in zip({', '.join(cut)}):")
        lines.append(f"    {name}({', '.join(['*part', *same])})")
        return lines

    def _same(self, held: Held) -> str:
        name, shape = self.name(held), getattr(held.value, "shape", ())
        return f"{name}.reshape({inner(shape)})" if shape[:1] == (1,) else name

    def _check(self, call: Check) -> str:
        targets = ", ".join(self.name(held) for held in call.results)
        look, again = self.known(has_nan, "has_nan"), self._function(call)
        names = ", ".join(self.name(held) for held in call.results)
        test = f"{look}({names})" if len(call.results) == 1 else f"any(map({look}, [{names}]))"
        given = ", ".join(self.tree(arg) for arg in call.args)
        return (
            f"{targets} = {', '.join(self.name(held) for held in call.grads)}\n"
            f"    if {test}:\n"
            f"        {targets}{',' * (len(call.results) == 1)} = {again}({given})"
        )

    def _dropped(self, lines: list[Call], outside: Container[int]) -> dict[int, list[Held]]:
        """Return the names to drop after each line, so that large memory is free again."""
        last = last_reads(lines)
        dropped: dict[int, list[Held]] = {}
        for call in lines:
            for held in call.results:
                if isinstance(held.value, (np.generic, int)) or id(held) in self.buffers:
                    continue
                large = any(getattr(r.value, "nbytes", LARGE) >= LARGE for r in held.roots)
                made = all(
                    not isinstance(r, (Leaf, Constant)) and id(r) not in self.buffers
                    for r in held.roots
                )
                if large and made and not any(id(r) in outside for r in held.roots):
                    line = max(last[id(r)] for r in held.roots)
                    dropped.setdefault(line, []).append(held)
        return dropped

    def _result(self, held: Held) -> str:
        """Return what a result is: of what the plan holds itself, a copy."""
        of_the_plan = any(isinstance(root, Constant) for root in held.roots)
        return f"{self.name(held)}.copy()" if of_the_plan else self.name(held)

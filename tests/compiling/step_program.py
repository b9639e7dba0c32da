"""A training step as a program: its source, its calls, and what changes between them.

`outcome` runs it twice from one source, eagerly and compiled, and compares after each call all that
either can have touched; `shrunk` takes lines away as long as the two still differ.
"""

from __future__ import annotations

import ast
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tapegraph as tg
from tests.compiling.beside import agree, engine_of, standing, taken

# Beyond, updates run away, and a last bit becomes any number: where bits may differ, none compares.
LARGEST = 1e5


@dataclass(frozen=True)
class Change:
    """What happens between two calls: a statement, before the call of that number (from 0).

    :ivar seen: Whether the next call must see it. Otherwise the next real call may find it instead.
    """

    call: int
    text: str
    seen: bool = True


@dataclass(frozen=True)
class Program:
    """A step of whole statements, so that any of them may be taken away.

    :ivar module: What stands at the top of the file: globals, functions, classes.
    :ivar made: What `make` sets up before the step: parameters, optimizers, numbers of the closure.
    :ivar body: The step's own statements. They put what it returns into ``out``.
    :ivar changes: In the order in which they happen.
    :ivar calls: The arguments of each call.
    :ivar parameters: Those of the function, as in ``"x, s=0.5"``.
    :ivar state: Expressions for what is compared after each call, besides the results.
    :ivar method: Whether the step is a method of ``m``.
    :ivar exact: Whether the native plan gives the numbers of eager steps to the bit. Not where sums
        may be in another order: in derivatives of the third order, and where gradients of tables
        are clipped or added up.
    """

    module: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    calls: tuple[str, ...] = ()
    parameters: str = "x"
    state: tuple[str, ...] = ()
    method: bool = False
    exact: bool = True
    seed: int = 0

    def source(self) -> str:
        """Return the program, to be run as it stands."""
        lines = ["import numpy as np", "", "import tapegraph as tg"]
        lines += ["from tapegraph.optim import schedules", "", *self.module]
        lines += ["", "def make():"]
        body = ["out = {}", *self.body, "return out"]
        if self.method:
            lines += ["    class Model:", "        @tg.compile"]
            lines += [f"        def step(m, {self.parameters}):", *_indented(body, 3), ""]
            lines += _indented(["m = Model()", *self.made, "step = m.step", ""], 1)
        else:
            texts = [*self.made, *self.body, *(change.text for change in self.changes)]
            model = ["class Model:", "    pass", "", "m = Model()"]
            lines += _indented(
                [*(model if any("m." in t for t in texts) else []), *self.made, ""], 1
            )
            lines += ["    @tg.compile", f"    def step({self.parameters}):"]
            lines += [*_indented(body, 2), ""]
        lines += ["    def between(call):"]
        bound = _bound([change.text for change in self.changes])
        made = bound & _bound(self.made)
        for kind, names in (("nonlocal", made), ("global", bound - made)):
            lines += [f"        {kind} {', '.join(sorted(names))}"] if names else []
        for change in self.changes:
            lines += [f"        if call == {change.call}:", *_indented([change.text], 3)]
        lines += [] if self.changes else ["        pass"]
        lines += ["", f"    return step, between, lambda: [{', '.join(self.state)}]", ""]
        calls = [f"    lambda: ({call},)," for call in self.calls]
        return "\n".join([*lines, "", "calls = [", *calls, "]", ""])


def _indented(texts: Sequence[str], levels: int) -> list[str]:
    return [textwrap.indent(text, "    " * levels) for text in texts]


def _bound(texts: Sequence[str]) -> set[str]:
    """Return the names that statements bind."""
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


class Raised:
    """What a call raised, in the place of a row."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def rows(code: Any, seed: int, found: dict[str, Any]) -> Iterator[Any]:
    """Run a program call by call; yield what each returned and left, and what it raised."""
    module: dict[str, Any] = {"__name__": "random_step"}
    exec(code, module)
    tg.random.seed(seed)
    step, between, state = module["make"]()
    found["step"] = step
    for number, arguments in enumerate(module["calls"]):
        try:
            between(number)
            out = step(*arguments())
            stream = tg.random.get_state()
            yield taken(out), standing(state()), stream
        except Exception as error:
            yield Raised(error)
            return


@dataclass
class Outcome:
    """What became of a program.

    :ivar kind: "equal"; "refused", where the compiled step says that it cannot be one program;
        "invalid", where the eager one raises in its first calls; or "differs".
    :ivar what: How they differ, or what was said.
    :ivar calls: How many calls were compared.
    :ivar engine: Which ran the compiled step last, "" if none has.
    """

    kind: str
    what: str = ""
    calls: int = 0
    engine: str = ""


def outcome(program: Program, engine: str) -> Outcome:
    """Run a program eagerly and compiled, and compare them call by call."""
    saved = tg.random.get_state()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _outcome(program, engine)
    finally:
        tg.random.set_state(saved)


def _outcome(program: Program, engine: str) -> Outcome:
    code = compile(program.source(), f"<random step {program.seed}>", "exec")
    with tg.use_backend("native"), tg.compile_disabled():
        try:
            want = list(rows(code, program.seed, {}))
        except Exception as error:
            return Outcome("invalid", repr(error))
    if not want or isinstance(want[0], Raised) or _is_broken(want[-1]):
        return Outcome("invalid", str(want[-1]) if want else "no call")
    unseen = [change.call for change in program.changes if not change.seen]
    how = engine if program.exact else "to a tolerance"
    found: dict[str, Any] = {}
    with tg.use_backend(engine):
        got = rows(code, program.seed, found)
        for number, (one, two) in enumerate(zip(got, want, strict=False)):
            ran = engine_of(found["step"])
            if isinstance(one, Raised):
                if isinstance(two, Raised):
                    return Outcome("equal", "", number, ran)
                if _may_refuse(one.error, number, unseen):
                    return Outcome("refused", str(one), number, ran)
                return Outcome("differs", f"call {number} raised {one}", number, ran)
            if how != "native" and _runs_away(two):
                return Outcome("equal", "", number, ran)
            difference = _difference(one, two, how)
            if difference and unseen and number >= min(unseen):
                return _found_later(got, number)
            if difference:
                return Outcome("differs", f"call {number}: {difference}", number, ran)
    return Outcome("equal", "", len(want), engine_of(found["step"]))


def _may_refuse(error: Exception, number: int, unseen: Sequence[int]) -> bool:
    """Tell whether a compiled step may raise where an eager one does not.

    Every program does the same in each call, but for its changes, and guards see all the others.
    """
    if isinstance(error, tg.TraceMismatchError):
        return bool(unseen) and number >= min(unseen)
    return isinstance(error, tg.ConcretizationError)


def _is_broken(row: Any) -> bool:
    """Tell whether a program reads what is not there, as where a line was taken away."""
    return isinstance(row, Raised) and isinstance(row.error, (NameError, AttributeError))


def _runs_away(row: Any) -> bool:
    """Tell whether a call returned, or left, a number beyond those that can be compared."""
    return not isinstance(row, Raised) and largest(row[:2]) > LARGEST


def largest(row: Any) -> float:
    """Return the largest number of a row of results and state."""
    if isinstance(row, (str, type(None))):
        return 0.0
    if isinstance(row, dict):
        row = list(row.values())
    if isinstance(row, (list, tuple)):
        return max(map(largest, row), default=0.0)
    return float(np.abs(np.nan_to_num(row, posinf=np.inf)).max(initial=0.0))


def _difference(got: Any, want: Any, engine: str) -> str:
    if isinstance(want, Raised):
        return f"eagerly raised {want}"
    try:
        agree(list(got), list(want), engine)
    except AssertionError as error:
        return str(error).strip() or traceback.format_exc()
    return ""


def _found_later(got: Iterator[Any], number: int) -> Outcome:
    """Tell whether the next real call says that a change was missed."""
    for later, row in enumerate(got, number + 1):
        if isinstance(row, Raised) and isinstance(row.error, tg.TraceMismatchError):
            return Outcome("equal", f"found in call {later}", number)
    return Outcome("differs", f"call {number}: a change that no real call has found", number)


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Return a program that still fails, and of which nothing more can be taken away."""
    smaller = True
    while smaller:
        smaller = False
        for name in ("changes", "body", "made", "module", "calls", "state"):
            size = max(len(getattr(program, name)) // 2, 1)
            while size:
                start = 0
                while start < len(getattr(program, name)):
                    lines = getattr(program, name)
                    rest = lines[:start] + lines[start + size :]
                    candidate = replace(program, **{name: rest})
                    if fails(candidate):
                        program, smaller = candidate, True
                    else:
                        start += size
                size //= 2
    return program

"""`compile`: a function whose calls are recorded, compared, and then run as one program."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import Any, TypeVar, overload

import numpy as np

from tapegraph import random
from tapegraph.compiling.arguments import call_text, flattened, parameters
from tapegraph.compiling.left_behind import expire
from tapegraph.compiling.programs import Programs
from tapegraph.compiling.trace import Trace, mismatch
from tapegraph.errors import explain, kind_of
from tapegraph.locks import Lock
from tapegraph.recording import concretization
from tapegraph.recording.away import is_away
from tapegraph.recording.conversions import DIFFERENTIATING
from tapegraph.recording.node import Node
from tapegraph.recording.scopes import RECORDING

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "TAPEGRAPH_COMPILE"
# Functions whose bodies run after the call.
_NOT_ONE_CALL = {
    "the generator function": inspect.isgeneratorfunction,
    "the asynchronous function": inspect.iscoroutinefunction,
    "the asynchronous generator function": inspect.isasyncgenfunction,
}
_logger = logging.getLogger("tapegraph")
_disabled: ContextVar[bool] = ContextVar("tapegraph_compile_disabled", default=False)


@contextmanager
def compile_disabled() -> Iterator[None]:
    """Run compiled functions eagerly inside the block, as ``TAPEGRAPH_COMPILE=0`` does for good.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import tapegraph as tg
    >>> with tg.compile_disabled():
    ...     tg.compile(lambda x: x * 2.0)(3.0)
    6.0
    """
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


def _enabled() -> bool:
    return not _disabled.get() and os.environ.get(VARIABLE, "1") not in ("", "0")


def _checks_floats() -> bool:
    """Tell whether NumPy is to do more about overflow and the like than warn: a plan would not."""
    return any(how not in ("ignore", "warn") for how in np.geterr().values())


class _Entry:
    """What is known of one combination of arguments: a recording, and then programs."""

    __slots__ = ("calls", "left", "programs", "trace")

    def __init__(self) -> None:
        self.left: list[weakref.ref[Node]] = []  # what recorded calls left behind
        self.trace: Trace | None = None
        self.programs: Programs | None = None
        self.calls = 0


class Compiled:
    """A compiled function; `tg.compile` makes it.

    Attributes
    ----------
    traces : int
        How many combinations of arguments it holds recordings of.
    """

    def __init__(self, fn: Callable[..., Any], max_traces: int, verify_every: int | None) -> None:
        self._fn = fn
        self._max_traces = max_traces
        self._verify_every = verify_every
        self._parameters = parameters(fn)
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        self._lock = Lock()
        self._runs_in: int | None = None  # the thread
        # By identity: instances may be equal and yet hold other parameters.
        self._bound: dict[int, tuple[weakref.ref[Any], Compiled]] = {}
        functools.update_wrapper(self, fn)
        self.__name__: str = getattr(fn, "__name__", "function")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        key, held = id(instance), self._bound
        if key in held and held[key][0]() is instance:
            return held[key][1]
        reference = weakref.ref(instance, lambda _: held.pop(key, None))

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._fn(reference(), *args, **kwargs)

        functools.update_wrapper(method, self._fn)
        bound = Compiled(method, self._max_traces, self._verify_every)
        bound._parameters = self._parameters[1:]
        held[key] = (reference, bound)
        return bound

    @property
    def traces(self) -> int:
        """How many combinations of arguments have been recorded."""
        return len(self._entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or the program that stands for it."""
        # Inside another recording it is a part of that, and a transform differentiates it.
        part = concretization.current() is not None or DIFFERENTIATING.value()
        if part or not _enabled() or _checks_floats():
            return self._fn(*args, **kwargs)
        found: list[tuple[str, Any]] = []
        names = (flattened(list(args), "args", found), flattened(kwargs, "kwargs", found))
        structure = (tuple, names)
        given = [value for _, value in found]
        if self._runs_in == get_ident() and self._lock().locked():
            fix = "Call the plain function there."
            raise RuntimeError(
                explain(
                    f"compile: {self.__name__}",
                    "a call of a step from an operation inside it",
                    "the end of the call that is going on",
                    fix,
                )
            )
        with self._lock():
            self._runs_in = get_ident()
            try:
                return self._call(structure, given)
            finally:
                self._runs_in = None

    def _call(self, structure: Any, given: list[Any]) -> Any:
        key = (structure, RECORDING.value())
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            text = call_text(self.__name__, self._parameters, structure)
            _logger.info("compile: %s: a new trace for %s", self.__name__, text)
            if len(self._entries) > self._max_traces:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        entry.calls += 1
        if entry.programs is None or not _still_holds(entry.trace):
            with random.taken_back():
                return self._record(entry, structure, given)
        if self._verify_every and entry.calls % self._verify_every == 0:
            with random.taken_back():
                return self._verified(entry, structure, given)
        if entry.left:
            expire(entry.left, self.__name__)
            entry.left = []
        if entry.trace is not None and entry.trace.draws:
            with random.taken_back():
                return self._run(entry.programs, structure, given)
        return self._run(entry.programs, structure, given)

    def _run(self, programs: Programs, structure: Any, given: list[Any]) -> Any:
        """Run the program; where it refuses what was given, let a real call say why."""
        try:
            return programs.run(given)
        except Exception:
            Trace(self._fn, structure, given).undo()
            raise

    def _record(self, entry: _Entry, structure: Any, given: list[Any]) -> Any:
        """Make a real call; the second one that is like the first makes the plan."""
        before, entry.programs = entry.trace, None
        trace = Trace(self._fn, structure, given)
        entry.trace = trace
        try:
            if before is not None and before.guards == trace.guards and _still_holds(before):
                difference = before.differs_from(trace)
                if difference is not None:
                    raise mismatch(self.__name__, difference)
                entry.programs = Programs(trace, self.__name__)
        except BaseException:
            entry.trace, entry.left = None, []
            trace.undo()
            raise
        result = trace.first()
        entry.left = trace.left_behind(entry.left)
        return result

    def _verified(self, entry: _Entry, structure: Any, given: list[Any]) -> Any:
        """Make a real call and compare it with the recording; go on with the recording."""
        trace = Trace(self._fn, structure, given)
        difference = entry.trace.differs_from(trace) if entry.trace is not None else None
        if difference is not None:
            entry.programs = entry.trace = None
            trace.undo()
            raise mismatch(self.__name__, difference)
        result = trace.first()
        entry.left = trace.left_behind(entry.left)
        return result

    def reset(self) -> None:
        """Forget every recording."""
        with self._lock():
            self._entries.clear()

    def source(self) -> str:
        """Return the native plan of the combination of arguments that was last called, as Python.

        Raises
        ------
        RuntimeError
            It has not been called three times yet.
        """
        for entry in reversed(self._entries.values()):
            if entry.programs is not None:
                return str(entry.programs.native.source)
        raise RuntimeError(
            explain("source", "a step that has no plan yet", "two calls alike", "Call it first.")
        )

    def explain(self) -> str:
        """Say what it holds: traces, the engine that ran last and why, entries, seconds."""
        lines = [f"{self.__name__}: {len(self._entries)} of {self._max_traces} traces"]
        for (structure, recording), entry in self._entries.items():
            text = call_text(self.__name__, self._parameters, structure)
            line = f"- {text}{'' if recording else ', under no_grad'}: "
            levels = []
            if entry.trace is not None:
                line += f"{len(entry.trace.recording)} entries, "
                levels = entry.trace.levels
            line += f"{entry.calls} calls, "
            if entry.programs is None:
                line += "recorded once"
            else:
                programs = entry.programs
                nbytes = programs.native.nbytes + sum(part.nbytes for part in levels)
                line += f"{nbytes / 1e6:.3g} MB of native buffers, "
                line += f"{programs.native.chains} chains in blocks, "
                if levels:
                    calls = sum(part.calls for part in levels)
                    line += f"{sum(map(len, levels))} numbers of Values in {calls} calls, "
                line += f"made in {programs.seconds:.3g} s, ran in {programs.ran or 'none yet'}"
            lines.append(line)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}, {self.traces} traces>"


def _still_holds(trace: Trace | None) -> bool:
    """Tell whether state is of the types that were recorded, and has gradients where it had."""
    if trace is None:
        return False
    program = trace.recording.program
    for slot, node in trace.state.items():
        if not is_away(node):  # there it keeps its type
            array = node._array
            if array.shape != program.shapes[slot] or array.dtype != program.dtypes[slot]:
                return False
        if node._requires_grad != program.needs[slot]:
            return False
    return trace.guards_hold()


@overload
def compile(fn: F, *, max_traces: int = 8, verify_every: int | None = None) -> F: ...
@overload
def compile(*, max_traces: int = 8, verify_every: int | None = None) -> Callable[[F], F]: ...
def compile(fn: Any = None, *, max_traces: int = 8, verify_every: int | None = None) -> Any:
    """Compile a function, such as a training step, to one program that is run as a whole.

    The first two calls are real ones: they run eagerly, are recorded whole and compared. From the
    third on the recorded program runs: the same numbers, without recording anything.

    Parameters
    ----------
    fn : callable
        Of arrays, numbers, and dicts, lists and tuples of them; it may read and update parameters,
        call ``backward()`` and an optimizer's ``step()``. Arrays count by shape and dtype, floats
        are fed, and ints, bools, strings and None count by value.
    max_traces : int
        How many combinations of arguments to hold; the least recently used are forgotten.
    verify_every : int, optional
        Make one real call in so many, and compare it with the recording.

    Returns
    -------
    callable
        With ``explain()``, ``source()``, ``reset()`` and ``traces``. Tensors among the results are
        constants: what a gradient is wanted of belongs inside.

    Raises
    ------
    ConcretizationError
        In the first call: a number that depends on an argument or on state became a plain one.
    TraceMismatchError
        In the second: it did something else than the first.

    Examples
    --------
    >>> import numpy as np
    >>> import tapegraph as tg
    >>> w = tg.param([1.0, 2.0])
    >>> optimizer = tg.SGD([w], lr=0.1)
    >>> @tg.compile
    ... def step(x):
    ...     loss = tg.sum((w * x) ** 2)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> [round(step(np.array([1.0, 1.0])).item(), 4) for _ in range(4)]
    [5.0, 3.2, 2.048, 1.3107]
    """
    if fn is None:
        return functools.partial(compile, max_traces=max_traces, verify_every=verify_every)
    if not callable(fn):
        raise TypeError(explain("compile", kind_of(fn), "a function"))
    for kind, is_kind in _NOT_ONE_CALL.items():
        if is_kind(fn):
            fix = "Compile the function that it calls, and loop or await outside."
            raise TypeError(explain("compile", f"{kind} {fn!r}", "a function", fix))
    if not isinstance(max_traces, int) or max_traces < 1:
        raise ValueError(explain("compile", f"max_traces={max_traces!r}", "1 or more"))
    return Compiled(fn, max_traces, verify_every)

"""`compile`: record a function's calls, compare them, and run them as one program."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from types import FunctionType, MethodType
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, get_args, overload

import numpy as np

from tapegraph import display, random
from tapegraph.arrays import is_shared
from tapegraph.capture import expire
from tapegraph.compiling.arguments import (
    call_text,
    how_calls_differ,
    leaf_names,
    of_call,
    positional_names,
)
from tapegraph.compiling.guards import FedPlace, View, look
from tapegraph.compiling.inputs import NotReal
from tapegraph.compiling.programs import Programs, programs_of
from tapegraph.compiling.ran import NOTHING_KNOWN, Known, Witness, top
from tapegraph.compiling.scan import Calls, Results
from tapegraph.compiling.trace import Occupied, Trace, TraceMismatchError, mismatch
from tapegraph.display import counted, logger
from tapegraph.environment import compiles, wrong_value
from tapegraph.errors import add_note, escaped, kind_of, message, sentence, user_line, warn
from tapegraph.interrupts import Lock, raise_interrupt
from tapegraph.numpy_warnings import are_mild
from tapegraph.other_names import unexpected
from tapegraph.pytree import leaves, mapped
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.node import Node, get_default_dtype
from tapegraph.recording.scopes import Scope, Setting, recorder
from tapegraph.recording.values import Undo, make, restore, take_back, together
from tapegraph.recording.watchers import COMPILING, WATCHING, AskReal, is_watched
from tapegraph.typed import Fun, Xla

F = TypeVar("F", bound=Fun)

VerifyEvery = int | Literal["doubling"] | None
OnRetrace = Literal["allow", "raise"]

_XLA: dict[str, Xla] = {"1": True, "0": False, "auto": "auto", "": "auto"}
# The number of traces, in hardly more calls, that gives a warning.
_MANY = 8
# How many differences in a row between real calls another thread may explain.
_MOST_DISTURBED = 3
# The attribute of an instance that holds its compiled methods; and of how many instances that
# cannot have one the methods are held.
_STEPS, _MOST_BOUND = "_compiled_steps", 64
# Functions whose bodies run after the call.
_NOT_ONE_CALL = {
    "the generator function": inspect.isgeneratorfunction,
    "the asynchronous function": inspect.iscoroutinefunction,
    "the asynchronous generator function": inspect.isasyncgenfunction,
}
# Arguments that hold no tensor.
_PLAIN = frozenset((np.ndarray, float, int, bool, complex, str, type(None)))
# The functions that `tapegraph.grad` and the like return, which give plain numbers for such.
DERIVATIVES: weakref.WeakSet[Fun] = weakref.WeakSet()
_DISABLED = Setting("tapegraph_compile_disabled", default=False)
_disabled_by = _DISABLED.entered.get


def compile_disabled() -> Scope[bool]:
    """Run compiled functions eagerly inside the block, as ``TAPEGRAPH_COMPILE=0`` does for good.

    :returns: Context manager.

    >>> with tg.compile_disabled():
    ...     tg.compile(lambda x: x * 2.0)(3.0)
    6.0
    """
    return Scope(_DISABLED, True)


def _runs_plainly() -> bool:
    # Inside another recording it is a part of that; a transform differentiates or batches it.
    here = recorder()
    if here.capture is not None or here.levels or DIFFERENTIATING.value() or _disabled_by():
        return True
    return not (compiles() and are_mild())  # a plan, too, can ignore an overflow, or warn


def _xla_of_environment() -> Xla:
    text = os.environ.get("TAPEGRAPH_XLA", "")
    if text not in _XLA:
        raise wrong_value("TAPEGRAPH_XLA", text, "'1', '0' or 'auto'")
    return _XLA[text]


_default_xla = _xla_of_environment()


@dataclass(slots=True, eq=False)
class _KnownCall:
    """The trace of one combination of arguments and of other values that the function reads."""

    arguments: Any
    view: View
    reason: str
    real: int  # the number of its next real call
    calls: int = 0
    unchecked: int = 0  # runs of the program since the last real call
    trace: Trace | None = None
    foreseen: bool = True  # the call that made the trace ran no code with names outside the view
    disturbed: int = 0  # real calls that prove nothing, as a value changed while they read it
    programs: Programs | None = None
    leaked: list[weakref.ref[Node]] = field(default_factory=list)  # tensors leaked from real calls

    def agrees(self, kept: Trace, trace: Trace, name: str) -> bool:
        """Return whether a real call made the recorded trace again; raise if no thread may be why.

        Another thread may have changed a value that one of the two calls has read.
        """
        difference = kept.differs_from(trace)
        if difference is None:
            self.disturbed = 0
        elif self.foreseen:
            sound = self.view.holds() and (self.programs is not None or not self.disturbed)
            if sound or self.disturbed == _MOST_DISTURBED:
                self.trace = self.programs = None
                raise mismatch(name, difference, self.unchecked)
            self.disturbed += 1
            self.real = self.calls + 1
        return difference is None


class Compiled:
    """A compiled function; `tg.compile` makes it."""

    _workers: Any = None  # whose gradients are averaged

    def __init__(
        self, fn: Any, max_traces: int, verify_every: VerifyEvery, on_retrace: OnRetrace, xla: Xla
    ) -> None:
        self._given = fn
        if isinstance(fn, (staticmethod, classmethod)):
            fn = fn.__func__
        self._fn = fn
        self._options: tuple[Any, ...] = (max_traces, verify_every, on_retrace, xla)
        self._max_traces, self._verify_every, self._on_retrace, self._xla = self._options
        self._entries: list[_KnownCall] = []  # the last called one is last
        self._known = NOTHING_KNOWN  # of the code that it runs
        self._calls = self._made = 0
        # Of the floats it sees, those whose numbers change, and those that can only count by value.
        self._fed: frozenset[str] = frozenset()
        self._by_value: frozenset[str] = frozenset()
        self._averages = False  # whether a call has averaged over processes
        self._parameters = positional_names(fn)
        function = getattr(fn, "__func__", fn)  # other callables may have no hash
        self._is_derivative = isinstance(function, FunctionType) and function in DERIVATIVES
        self._lock = Lock()
        self._runs_in: int | None = None  # the thread
        # Of instances that have no attributes of their own: by identity, as they may be equal.
        self._bound: OrderedDict[Any, Compiled] = OrderedDict()
        functools.update_wrapper(self, fn, updated=())
        if isinstance(fn, FunctionType):  # an object's attributes are its own
            vars(self).update({k: v for k, v in vars(fn).items() if not hasattr(self, k)})
        self.__name__: str = getattr(fn, "__name__", type(fn).__name__)

    def __get__(self, instance: Any, owner: object = None) -> Any:
        if isinstance(self._given, classmethod):
            instance = owner
        elif instance is None or isinstance(self._given, staticmethod):
            return self
        steps: Any
        key: Any
        attributes = getattr(instance, "__dict__", None)
        if not isinstance(attributes, dict):  # in slots; a class lets nobody write into its own
            steps, key = self._bound, id(instance)
        else:
            steps, key = attributes.get(_STEPS), self
            if steps is None or steps.owner() is not instance:  # none, or those of a copied one
                steps = attributes[_STEPS] = _Steps(instance)
        if key not in steps:
            steps[key] = type(self)(MethodType(self._fn, instance), *self._options)
            if len(self._bound) > _MOST_BOUND:
                self._bound.popitem(last=False)
        return steps[key]

    def __reduce__(self) -> Any:
        """Pickle by name, as functions do, else as function and options, without traces."""
        named: Any = sys.modules.get(self.__module__)
        for part in getattr(self, "__qualname__", self.__name__).split("."):
            named = getattr(named, part, None)
        if named is self:
            return getattr(self, "__qualname__", self.__name__)
        return type(self), (self._fn, *self._options)

    @property
    def traces(self) -> int:
        """The number of traces: of arguments, and of values that the function reads besides."""
        return len(self._entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or run its program."""
        if _runs_plainly():
            return self._fn(*args, **kwargs)
        found: list[tuple[str, Any]] = []
        try:
            structure = of_call(args, kwargs, found)
        except TypeError:
            if args and isinstance(args[0], type):  # from Python 3.13 on a classmethod passes it
                method = inspect.getattr_static(args[0], self.__name__, None)
                if getattr(method, "__func__", None) is self:
                    return self.__get__(args[0])(*args[1:], **kwargs)
            raise
        result = self._alone(self._called, structure, [value for _, value in found])
        return self._as_eagerly(result, args, kwargs) if self._is_derivative else result

    def _alone(self, work: Fun, *arguments: object) -> Any:
        """Do some work while no other thread does: all of it, or nothing."""
        undo: Undo = deque()
        taken_back = together(undo)
        with self._lock.held:
            thread = get_ident()
            if self._runs_in == thread:
                raise RuntimeError(
                    sentence(
                        f"compile: {self.__name__}",
                        "an operation inside the step calls the step. Call the plain function.",
                    )
                )
            self._runs_in = thread
            try:
                return work(*arguments, undo)
            except BaseException:
                make(taken_back)  # nothing, once the call has been committed
                raise
            finally:
                self._runs_in = None

    def _called(
        self, structure: object, given: list[Any], undo: Undo, entry: _KnownCall | None = None
    ) -> Any:
        entry = entry or self._entry(structure)
        entry.calls += 1
        if entry.view.fed:
            given = [*given, *(place.read() for place in entry.view.fed)]
        trace = entry.trace
        if trace is None or not trace.holds():
            entry.programs, entry.unchecked = None, 0
        real = entry.calls == entry.real or _is_looked_at(trace)
        if trace is None or entry.programs is None or real:
            return self._real(entry, given, undo)
        entry.unchecked += 1
        if entry.leaked:
            self._expire(entry)
        if trace.draws:
            random.come_back(undo)
        try:
            return entry.programs.run(given, undo)
        except AskReal as asked:
            take_back(undo)
            if isinstance(asked, NotReal):  # the recording has only floats
                entry.trace = entry.programs = None
            return self._real(entry, given, undo)
        except (ArithmeticError, LookupError, ValueError):  # the arguments are at fault
            if not trace.averages:  # a real call would be a second average, here alone
                self._raise_as_really(entry, given[: len(given) - len(entry.view.fed)])
            raise

    def _raise_as_really(self, entry: _KnownCall, given: list[Any]) -> None:
        """Make a real call to raise the error of invalid arguments; it changes nothing."""
        tried: Undo = deque()
        taken_back = together(tried)
        try:
            random.come_back(tried)
            Trace(self._fn, entry.arguments[0], given, tried)
        finally:
            make(taken_back)

    def _entry(self, structure: object) -> _KnownCall:
        """Return the trace of some arguments and of the values that the function reads now."""
        arguments = structure, recorder().flows, get_default_dtype()
        self._calls += 1
        for entry in reversed(self._entries):
            if entry.arguments == arguments and entry.view.holds():
                break
        else:
            alike = [entry for entry in self._entries if entry.arguments == arguments]
            entry = self._seen_before(alike) or self._new_entry(arguments, alike)
        entry.arguments = arguments
        if entry is not self._entries[-1]:
            self._entries.remove(entry)
            self._entries.append(entry)
        return entry

    def _seen_before(self, alike: list[_KnownCall]) -> _KnownCall | None:
        """Return the trace of equal values in other objects, or None."""
        views: dict[Known, View] = {}
        for entry in alike:
            known = entry.view.known
            if known not in views:
                views[known] = self._look(known)
            if views[known].key == entry.view.key:
                entry.view = views[known]
                return entry
        if alike:
            before = alike[-1].view
            changed = before.floats_that_differ(views[before.known])
            self._fed |= changed - self._by_value
        return None

    def _look(self, known: Known) -> View:
        return look(self._fn, known, self._fed)

    def _count_by_value(self, names: Iterable[str], entry: _KnownCall) -> None:
        """Make floats that cannot be fed static, and drop the traces that fed them."""
        self._by_value |= frozenset(names)
        self._fed -= self._by_value
        entry.programs = entry.trace = None
        self._entries.remove(entry)

    def _new_entry(self, arguments: Any, alike: list[_KnownCall]) -> _KnownCall:
        if alike:
            view = alike[-1].view
            reason = view.difference(self._look(view.known))
        elif self._entries:
            before = self._entries[-1].arguments[0]
            reason = how_calls_differ(self._parameters, before, arguments[0])
        else:
            reason = "other arguments" if self._made else "the first call"
        if self._made and self._on_retrace == "raise":
            text = (
                f"this call needs a new trace ({reason}), but on_retrace='raise'. Keep it the "
                "same, pass it as an array or a float, or allow new traces."
            )
            raise TraceMismatchError(sentence(f"compile: {self.__name__}", text))
        self._made += 1
        view = self._look(self._known)
        self._known = view.known
        text = call_text(self.__name__, self._parameters, arguments[0])
        if self._made == _MANY and self._made > 0.75 * self._calls:
            warning = (
                f"{self._made} new traces in {self._calls} calls; the last for {text}: {reason}. "
                "Results are correct, but every call is traced again. Pass a changing number as a "
                "float or an array, such as np.array(0), or keep it in a tensor made outside and "
                "write n.assign(n + 1). Return results, and collect them outside."
            )
            warn(sentence(f"compile: {self.__name__}", warning), RuntimeWarning)
        entry = _KnownCall(arguments, view, reason, self._next_real(0))
        self._entries.append(entry)
        logger().info(escaped(f"compile: {self.__name__}: a new trace for {text}: {reason}"))
        if len(self._entries) > self._max_traces:
            del self._entries[0]
        return entry

    def _next_real(self, calls: int) -> int:
        every = self._verify_every
        if isinstance(every, str):
            return max(4, 1 << calls.bit_length())
        return 0 if every is None else calls - calls % every + every

    def _traced(self, witness: Witness, entry: _KnownCall, given: list[Any]) -> tuple[Trace, bool]:
        """Make a real call; return it, and whether it was recorded.

        With fed floats there are two calls. The first sees plain floats, the second records them as
        numbers of the program. If the second leaves anything else, the first is made again, and
        counts.
        """
        fed = entry.view.fed
        first = len(given) - len(fed)
        if not fed:
            return self._call_anew(witness, entry, given), True
        left = None
        if not self._averages:  # another call would be a second average, here alone
            plain = self._call_anew(witness, entry, given[:first])
            self._averages = plain.averages
            # Whether the function sees the same objects as before, the fed floats too.
            same = all(p.read() is x for p, x in zip(fed, given[first:], strict=True))
            if same and not entry.view.holds():
                same = self._look(entry.view.known).key == entry.view.key
            if self._averages or not same:
                if entry.trace is None and entry.calls >= _MANY:
                    self._count_by_value((place.name for place in fed), entry)
                return plain, False  # it would repeat its own changes
            left = plain.left()
        recorded, occupied = None, False
        try:
            recorded = self._call_anew(witness, entry, given, fed)
            if left is None or (recorded.left() == left and not recorded.changed):
                if left is not None:
                    recorded.follows(plain)
                return recorded, True
        except Occupied:
            occupied = True
        except Exception as error:
            raise_interrupt(error)
        plain = self._call_anew(witness, entry, given[:first])
        if recorded is not None:
            for place, before, now in recorded.changed:  # by other threads
                if place.read() is before:
                    place.put(now)
            occupied = bool(recorded.changed) and not recorded.read_floats
        if occupied:  # by another thread
            return plain, False
        unchecked, has_run = entry.unchecked, entry.programs is not None
        self._count_by_value((place.name for place in fed), entry)
        if recorded is not None and has_run:
            names = ", ".join(place.name for place in fed)
            difference = f"with {names} fed, the numbers are not those of a plain float"
            raise mismatch(self.__name__, difference, unchecked)
        return plain, True

    @staticmethod
    def _call_anew(
        witness: Witness, entry: _KnownCall, given: list[Any], fed: Sequence[FedPlace] = ()
    ) -> Trace:
        """Make a real call from the state at the beginning of the call."""
        take_back(witness.undo)
        random.come_back(witness.undo)
        return Trace(witness, entry.arguments[0], given, witness.undo, fed)

    def _real(self, entry: _KnownCall, given: list[Any], undo: Undo) -> Any:
        """Make a real call, and compare it with the recording; the second one makes the plan."""
        entry.real = self._next_real(entry.calls)
        watchers = WATCHING.value()
        for watcher in watchers:
            watcher.begins(COMPILING, f"capturing {self.__name__}")
        try:
            witness = Witness(self._fn, undo)
            trace, is_recorded = self._traced(witness, entry, given)
            kept, programs = entry.trace, entry.programs
            if kept is None:
                entry.disturbed = int(not entry.view.holds())
            elif is_recorded and (programs is not None or kept.is_comparable_to(trace)):
                if not entry.agrees(kept, trace, self.__name__):
                    is_recorded = programs is None
                elif programs is None:
                    if trace.unrolled:
                        warn(sentence(f"compile: {self.__name__}", trace.unrolled), RuntimeWarning)
                    programs = programs_of(trace, self.__name__, self._xla)
            result = trace.first()
            entry.leaked = trace.leaked(entry.leaked)
            if is_recorded:
                if entry.programs is None:
                    entry.trace, entry.programs = trace, programs
                entry.unchecked = 0
            self._foresee(entry, witness)
            if trace.read_floats:
                self._count_by_value(trace.read_floats, entry)
            return result
        finally:
            for watcher in watchers:
                watcher.ends()

    def _foresee(self, entry: _KnownCall, witness: Witness) -> None:
        """Look at what a call's code has read, if its view did not cover the code.

        Nobody knows those values at the beginning of the call, so the next call is a real one.
        """
        before = entry.view
        package = top(getattr(self._fn, "__module__", None))
        known = before.known.with_ran(witness.noted, package, before.packages)
        entry.foreseen = True
        if known is not before.known:
            then, now = self._look(before.known), self._look(known)
            self._known = self._known.with_ran(witness.noted, package, before.packages)
            entry.foreseen = then.key == now.key
            if not entry.foreseen:
                entry.view, entry.programs = now, None
            elif then.key == before.key:
                entry.view = now

    def scan(self, *args: object, length: int | None = None, **kwargs: object) -> Any:
        """Call the function once for each row of its array arguments, in one go.

        The results are those of many calls, with state carried from call to call. Inside another
        compiled function, or a differentiated one, the calls become part of that. (A loop inside a
        function, with a gradient, is `tapegraph.scan`.)

        :param args, kwargs: Arrays of shape (n, ...), also in dicts, lists and tuples, of which
            each call takes a row; or one `tapegraph.data.epoch`, of which it takes a batch. Plain
            Python values and parameters are the same in every call; `tapegraph.each` gives each its
            own number.
        :param length: n, if no argument is an array.
        :returns: The results, stacked along a new first axis. Values are listed.
        :raises TypeError, ValueError: The lengths of arguments differ, or the structures or shapes
            of results.
        :raises Exception: The exception of call k, with a note that names k; state is that after
            the calls before, as after Ctrl-C between two calls.

        >>> total = tg.tensor(0.0)
        >>> @tg.compile
        ... def add(x):
        ...     total.assign(total + x)
        ...     return total
        >>> add.scan(np.array([1.0, 2.0, 3.0]))
        Tensor([1., 3., 6.])
        """
        plain = _runs_plainly()
        calls = Calls(args, kwargs, length, recorded=plain)
        results = Results(len(calls), recorded=plain)
        with counted(f"scan of {self.__name__}", len(calls)) as progress:
            while results.count < len(calls):
                try:
                    if plain or self._workers is not None:
                        positional, named = calls.arguments(results.count)
                        results.add(self(*positional, **named))
                    else:
                        self._alone(self._next, calls, results)
                except BaseException as error:
                    add_note(error, f"in call {results.count} of a scan of {len(calls)}")
                    raise
                progress(results.count)
        stacked = results.stacked()
        return self._as_eagerly(stacked, args, kwargs) if self._is_derivative else stacked

    @staticmethod
    def _as_eagerly(result: object, args: Any, kwargs: object) -> Any:
        """Return results in the kinds of eager calls: numbers for numbers, tensors for tensors."""
        plain = not kwargs and _PLAIN.issuperset(map(type, args))
        plain = plain or not any(isinstance(x, Node) for _, x in leaves((args, kwargs)))
        return mapped(_as_number, result) if plain else result

    def _next(self, calls: Calls, results: Results, undo: Undo) -> None:
        """Make the next calls of a scan: all alike ones, up to the next real call."""
        block = calls.block(results.count)
        entry = self._entry(block.structure)
        runs = block.count if not entry.real else min(block.count, entry.real - entry.calls - 1)
        trace, programs = entry.trace, entry.programs
        repeats = trace is not None and trace.holds() and trace.repeats
        if runs > 1 and programs is not None and repeats and not _is_looked_at(trace):
            self._expire(entry)
            block.and_fed([place.read() for place in entry.view.fed])
            done = programs.run_many(block, runs, undo, results)
            entry.calls += done
            entry.unchecked += done
            if done == runs:
                return
            block = calls.block(results.count)
        results.add(self._called(block.structure, block.given, undo, entry))

    def _expire(self, entry: _KnownCall) -> None:
        expire(entry.leaked, self.__name__)
        entry.leaked = []

    def reset(self) -> None:
        """Drop every trace."""
        with self._lock.held:
            self._entries.clear()
            self._calls = self._made = 0

    def source(self) -> str:
        """Return the native plan of the last call's trace, as Python.

        :raises RuntimeError: It has not been called three times yet.
        """
        return "\n".join(part.native.source for part in self._latest_programs("source", "plan"))

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write TensorFlow's graph of the last call's trace for TensorBoard, whatever engine runs.

        Parameters have their names in it; a slash in a name is a scope.

        :raises RuntimeError: It has not been called three times yet, or TensorFlow cannot run it.
        """
        parts = self._latest_programs("write", "graph")
        for place, part in enumerate(parts):
            part.write(folder if len(parts) == 1 else os.path.join(folder, f"part_{place}"))

    def _latest_programs(self, op: str, what: str) -> list[Programs]:
        for entry in reversed(self._entries):
            if entry.programs is not None:
                return entry.programs.parts
        calls = max((entry.calls for entry in self._entries), default=0)
        raise RuntimeError(
            f"{op}: {self.__name__} has no {what} yet: it needs two calls with arguments alike, "
            f"and has had {calls}. (at {user_line()})"
        )

    def explain(self) -> str:
        """Describe the traces: the engine and its reason, the others' cost, and what to change."""
        lines = [f"{self.__name__}: {len(self._entries)} of {self._max_traces} traces"]
        if not self._entries:
            lines.append("It has not been called, or was reset: two calls alike make its program.")
        for entry in self._entries:
            structure, recording, dtype = entry.arguments
            text = call_text(self.__name__, self._parameters, structure)
            line = f"- {text}{'' if recording else ', under no_grad'}"
            line += f"{'' if dtype == np.float64 else f', {dtype} by default'}: {entry.reason}; "
            if entry.trace is not None:
                line += f"{len(entry.trace.recording)} entries, "
            line += f"{entry.calls} calls, "
            if entry.programs is None:
                fix = "Its next call alike is a real one too: the two are compared, and then the "
                lines += [line + "recorded once", f"  {fix}program runs."]
            else:
                ran = "; ".join(part.description() for part in entry.programs.parts)
                lines += [line + ran, f"  {entry.programs.advice()}"]
                if entry.trace is not None and entry.trace.unrolled:
                    lines.append(f"  {entry.trace.unrolled}")
        return "\n".join(map(escaped, lines))

    def _repr_html_(self) -> str:
        return display.heading("compiled step", self.__name__) + display.html_text(self.explain())

    def __repr__(self) -> str:
        text = f"{self.traces} trace{'' if self.traces == 1 else 's'}"
        programs = self._entries[-1].programs if self._entries else None
        title = "" if programs is None else programs.title
        ran = f", ran in {title}" if title else ""
        return escaped(f"<compiled {self.__name__}, {text}{ran}>")


class Latest(NamedTuple):
    """The last call of a compiled function."""

    text: str
    names: list[str]  # of its arrays and floats
    trace: Trace
    programs: Programs | None


def latest(step: Compiled) -> Latest | None:
    """Return the last call of a compiled function, None before the first."""
    for entry in reversed(step._entries):
        if entry.trace is not None:
            structure = entry.arguments[0]
            text = call_text(step.__name__, step._parameters, structure)
            names = leaf_names(step._parameters, structure)
            return Latest(text, names, entry.trace, entry.programs)
    return None


def _as_number(x: object) -> Any:
    if not isinstance(x, Node):
        return x
    if not restore(x).ndim:  # an engine may have kept its numbers
        return x._array.item()
    alone = x._array.base is None and x._array.flags.writeable and not is_shared(x)
    return x._array if alone else np.array(x._array)


class _Steps(dict[Compiled, Compiled]):
    """The compiled methods of one instance, stored among its attributes: a copy makes its own."""

    def __init__(self, owner: object = None) -> None:
        self.owner: Any = (lambda: None) if owner is None else weakref.ref(owner)

    def __reduce__(self) -> Any:
        return _Steps, ()


def _is_looked_at(trace: Trace | None) -> bool:
    """Return whether every call is a real one, because a watcher may need one after a run."""
    return trace is not None and trace.averages and is_watched()


# Runs a step under a strategy. The package sets it, as `tapegraph.distributed` stands above.
on_workers: Any = None


@overload
def compile(
    fn: F,
    *,
    max_traces: int = 8,
    verify_every: VerifyEvery = "doubling",
    on_retrace: OnRetrace = "allow",
    xla: Xla | None = None,
    strategy: Any = None,
) -> F: ...
@overload
def compile(
    *,
    max_traces: int = 8,
    verify_every: VerifyEvery = "doubling",
    on_retrace: OnRetrace = "allow",
    xla: Xla | None = None,
    strategy: Any = None,
) -> Callable[[F], F]: ...
def compile(
    fn: Any = None,
    *,
    max_traces: int = 8,
    verify_every: VerifyEvery = "doubling",
    on_retrace: OnRetrace = "allow",
    xla: Xla | None = None,
    strategy: Any = None,
    **others: NoReturn,
) -> Any:
    """Compile a function, such as a training step, to one program.

    The first two calls run eagerly, are captured and compared. From the third on the recorded
    program runs: the same numbers, without recording. Every call checks the other values that the
    function reads (closure, globals, attributes); if one has changed, there is a new trace.

    :param fn: Callable of arrays, numbers, and dicts, lists and tuples of them; it may read and
        update parameters, call ``backward()`` and an optimizer's ``step()``. Arrays count by shape
        and dtype, floats are fed, and ints, bools, strings and None are static.
    :param max_traces: The number of traces to keep; the least recently used is dropped first.
    :param verify_every: The calls of each trace that run eagerly and are compared with the
        recording: one in so many, the 4th, 8th, 16th and so on, or none.
    :param on_retrace: {"allow", "raise"}. Whether a retrace is an error.
    :param xla: Whether TensorFlow compiles the step with XLA: True always, though numbers may
        differ where they overflow or are not finite; False never; "auto" if numbers agree and it
        measured faster. None takes ``TAPEGRAPH_XLA``, or else "auto".
    :param strategy: A `tf.distribute` strategy, or a function that makes it. Each process calls the
        step equally often with its part of the batch. Optimizers use, and clipping limits, the mean
        of the workers' gradients, and start from the first worker's numbers. Results are each
        worker's own.
    :returns: Callable with ``scan()``, which makes many calls at once, ``explain()``, ``source()``,
        ``reset()`` and ``traces``. Tensors among the results are constants: differentiate inside.
    :raises ConcretizationError: In the first call: a number that depends on an argument or on state
        became a plain one.
    :raises TraceMismatchError: In a later eager call: it differs from the first. Under
        ``on_retrace="raise"``: a call needs a new trace.
    :raises TypeError, ValueError: An option is invalid, the strategy is of another kind or has
        several replicas in this process, or the workers' parameters or optimizers differ.
    :raises RuntimeError: A function made the strategy after TensorFlow's first operation, or the
        step changes a parameter without an optimizer under a strategy.
    :raises ConnectionError: In a call under a strategy: a worker has ended.
    :raises tapegraph.lowering.Unavailable: There is a strategy, and no TensorFlow.

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
    if others:
        raise unexpected("compile", others)
    if fn is None:
        return functools.partial(
            compile,
            max_traces=max_traces,
            verify_every=verify_every,
            on_retrace=on_retrace,
            xla=xla,
            strategy=strategy,
        )
    if isinstance(fn, Compiled):  # with other options
        fn, strategy = fn._given, fn._workers if strategy is None else strategy
    if not callable(fn) and not isinstance(fn, classmethod):
        raise TypeError(message("compile", kind_of(fn), "a function"))
    for kind, is_kind in _NOT_ONE_CALL.items():
        if is_kind(getattr(fn, "__func__", fn)):
            fix = "Compile the function that it calls, and loop or await outside."
            raise TypeError(message("compile", f"{kind} {fn!r}", "a function", fix))
    if not isinstance(max_traces, int) or max_traces < 1:
        raise ValueError(message("compile", f"max_traces={max_traces!r}", "1 or more"))
    whole = isinstance(verify_every, int) and not isinstance(verify_every, bool)
    if not (verify_every is None or verify_every == "doubling" or (whole and verify_every > 0)):
        expected = "a number of calls from 1, 'doubling' or None"
        raise ValueError(message("compile", f"verify_every={verify_every!r}", expected))
    if on_retrace not in get_args(OnRetrace):
        raise ValueError(message("compile", f"on_retrace={on_retrace!r}", "'allow' or 'raise'"))
    if xla is None:
        xla = _default_xla
    elif type(xla) is not bool and not (isinstance(xla, str) and xla == "auto"):
        raise ValueError(message("compile", f"xla={xla!r}", "True, False, 'auto' or None"))
    step = Compiled(fn, max_traces, verify_every, on_retrace, xla)
    return step if strategy is None else on_workers(step, strategy)

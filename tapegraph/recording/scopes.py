"""Settings of a ``with`` block, as context variables: recorder, gradient flow, engine."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, overload

from tapegraph.errors import message
from tapegraph.typed import Backend, Fun

T = TypeVar("T")
F = TypeVar("F", bound=Fun)


class Unbegun:
    """Stands for the recorder of a thread that has not recorded yet; its first use makes one."""

    recorder_class: Any = None  # the eager one (`tapegraph.recording.recorder`)

    def __getattr__(self, name: str) -> Any:
        if RECORDER.get() is self:
            RECORDER.set(self.recorder_class())
        return getattr(RECORDER.get(), name)


# The present recorder, which operations, tensors and transforms call whatever its class.
RECORDER: ContextVar[Any] = ContextVar("tapegraph_recorder", default=Unbegun())  # noqa: B039 - it is never changed
recorder = RECORDER.get


class Setting(Generic[T]):
    """One setting: the blocks entered in this thread or task, innermost last, with values."""

    __slots__ = ("default", "entered", "set")

    def __init__(self, name: str, default: T) -> None:
        self.default = default
        self.entered: ContextVar[tuple[tuple[object, T], ...]] = ContextVar(name, default=())
        self.set: Callable[[tuple[tuple[object, T], ...]], object] = self.entered.set

    def value(self) -> T:
        entered = self.entered.get()
        return entered[-1][1] if entered else self.default

    def enter(self, scope: object, value: T) -> None:
        self.set((*self.entered.get(), (scope, value)))

    def leave(self, scope: object) -> None:
        """Leave the last block of a scope, not always the innermost, as generators interleave."""
        entered = self.entered.get()
        for position in range(len(entered) - 1, -1, -1):
            if entered[position][0] is scope:
                self.set((*entered[:position], *entered[position + 1 :]))
                return


class Scope(Generic[T]):
    """A reusable context manager and decorator that sets a value."""

    __slots__ = ("_setting", "_value")

    def __init__(self, setting: Setting[T], value: T) -> None:
        self._setting = setting
        self._value = value

    def __enter__(self) -> None:
        self._setting.enter(self, self._value)

    def __exit__(self, *exception: object) -> None:
        self._setting.leave(self)

    def __call__(self, fn: F) -> F:
        if inspect.isasyncgenfunction(fn):
            received, fix = "an asynchronous generator function", "Write the with block inside it."
            raise TypeError(message("a decorator", received, "another function", fix))
        if inspect.isgeneratorfunction(fn):
            wrapped: Fun = _generator(fn, self)
        elif inspect.iscoroutinefunction(fn):

            async def wrapped(*args: object, **kwargs: object) -> Any:
                with self:
                    return await fn(*args, **kwargs)

        else:

            def wrapped(*args: object, **kwargs: object) -> Any:
                with self:
                    return fn(*args, **kwargs)

        return functools.wraps(fn)(wrapped)  # type: ignore[return-value]


def _generator(fn: Fun, scope: Scope[Any]) -> Fun:
    def generator(*args: object, **kwargs: object) -> Generator[Any, Any, Any]:
        running = fn(*args, **kwargs)
        resume = running.send
        value: Any = None
        while True:
            try:
                with scope:
                    item = resume(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield item
                resume = running.send
            except GeneratorExit:
                with scope:
                    running.close()
                raise
            except BaseException as error:
                value, resume = error, running.throw

    return generator


def _set_recording(entered: tuple[tuple[object, bool], ...]) -> None:
    flows = not entered or entered[-1][1]
    values = entered, RECORDER.get().where_gradients_flow(flows)
    # One call of C code: a signal handler finds neither changed, or both.
    deque(map(ContextVar.set, (RECORDING.entered, RECORDER), values), maxlen=0)


# Whether gradients flow.
RECORDING = Setting("tapegraph_recording", default=True)
RECORDING.set = _set_recording
BACKEND: Setting[Backend | None] = Setting("tapegraph_use_backend", default=None)


@overload
def no_grad() -> Scope[bool]: ...
@overload
def no_grad(fn: F) -> F: ...
def no_grad(fn: Fun | None = None) -> Any:
    """Run code without recording, as a context manager or decorator.

    Results inside are constants, and ``w -= lr * w.grad`` changes a parameter itself. A block holds
    in its thread or asyncio task until its end; a generator that yields inside leaves it open for
    its caller. Of a decorated generator or coroutine it holds in the function's own code.

    :param fn: The function to wrap.
    :returns: A context manager and decorator, or the wrapped function.

    >>> x = tg.param(2.0)
    >>> with tg.no_grad():
    ...     y = x * 3.0
    >>> y.requires_grad
    False
    """
    scope = Scope(RECORDING, False)
    return scope if fn is None else scope(fn)

"""`no_grad`: run code without recording."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, overload

from tapegraph import scopes

F = TypeVar("F", bound=Callable[..., Any])


class no_grad:
    """Context manager and decorator: what runs inside is computed but not recorded.

    Results made inside are constants. ``tg.no_grad(fn)`` returns the wrapped function; a
    generator function is wrapped so that only its own code runs without recording.

    Parameters
    ----------
    fn : callable, optional
        The function to wrap.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param(2.0)
    >>> with tg.no_grad():
    ...     y = x * 3.0
    >>> y.requires_grad
    False
    >>> tg.no_grad(lambda: x * 3.0)().requires_grad
    False
    """

    @overload
    def __new__(cls) -> no_grad: ...
    @overload
    def __new__(cls, fn: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, fn: Any = None) -> Any:
        """Make a context manager, or wrap a function."""
        return object.__new__(cls) if fn is None else _wrapped(fn)

    def __enter__(self) -> None:
        scopes.enter("recording", False, sys._getframe(1), self)

    def __exit__(self, *exception: object) -> None:
        scopes.leave_last(self, sys._getframe(1))

    def __call__(self, fn: F) -> F:
        """Wrap a function: ``@tg.no_grad()`` reads as ``@tg.no_grad``."""
        return _wrapped(fn)


def _wrapped(fn: F) -> F:
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            # The scope belongs to this generator, and so holds only while it runs.
            with no_grad():
                return (yield from fn(*args, **kwargs))

        return generator  # type: ignore[return-value]
    if inspect.isasyncgenfunction(fn):

        @functools.wraps(fn)
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with no_grad():
                async with contextlib.aclosing(fn(*args, **kwargs)) as items:
                    async for item in items:
                        yield item

        return async_generator  # type: ignore[return-value]
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with no_grad():
                return await fn(*args, **kwargs)

        return coroutine  # type: ignore[return-value]

    @functools.wraps(fn)
    def function(*args: Any, **kwargs: Any) -> Any:
        with no_grad():
            return fn(*args, **kwargs)

    return function  # type: ignore[return-value]

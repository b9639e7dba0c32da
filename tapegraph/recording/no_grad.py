"""`no_grad`: run code without recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from tapegraph.recording.scopes import RECORDING, Scope

F = TypeVar("F", bound=Callable[..., Any])


@overload
def no_grad() -> Scope[bool]: ...
@overload
def no_grad(fn: F) -> F: ...
def no_grad(fn: Callable[..., Any] | None = None) -> Any:
    """Context manager and decorator: what runs inside is computed but not recorded.

    Results made inside are constants. ``w -= lr * w.grad`` on a parameter inside changes the
    parameter itself. ``tg.no_grad(fn)`` returns the wrapped function.

    A block holds in its thread or asyncio task from ``with`` to its end. A generator that yields
    inside its block, such as a test fixture, hands it to its caller until it goes on. In a
    decorated generator or coroutine function it holds while the function's own code runs.

    Parameters
    ----------
    fn : callable, optional
        The function to wrap.

    Returns
    -------
    Scope or callable
        What ``with`` enters and a decorator is, or the wrapped function where one is given.

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
    scope = Scope(RECORDING, False)
    return scope if fn is None else scope(fn)

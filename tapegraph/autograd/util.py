"""Arguments with some of them replaced, and autograd's first gradient check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tapegraph.autograd.test_util import check_grads
from tapegraph.errors import warn

__all__ = ["quick_grad_check", "subval", "subvals"]


def subvals(x: Iterable[Any], ivs: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """Return a sequence as a tuple, with values put at some places."""
    found = list(x)
    for place, value in ivs:
        found[place] = value
    return tuple(found)


def subval(x: Iterable[Any], i: int, v: Any) -> tuple[Any, ...]:
    """Return a sequence as a tuple, with a value put at a place."""
    return subvals(x, [(i, v)])


def quick_grad_check(
    fun: Callable[..., Any],
    arg0: Any,
    extra_args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    **_: Any,
) -> None:
    """Check the gradient of a function by its first argument against central differences.

    Raises
    ------
    AssertionError
        It differs.
    """
    warn("quick_grad_check: deprecated, as in autograd; write check_grads", UserWarning)
    check_grads(lambda x: fun(x, *extra_args, **(kwargs or {})), modes=["rev"], order=1)(arg0)

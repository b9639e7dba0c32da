"""Sequences with some elements replaced, and autograd's first gradient check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, TypeVar

from tapegraph.errors import warn
from tapegraph.typed import Fun, Pytree

F = TypeVar("F")


def submodule(
    name: str, doc: str | None, names: dict[str, Any], others: Callable[[str], Any]
) -> ModuleType:
    """Return a module without a file: some names, and a function that finds others."""
    made = sys.modules[name] = ModuleType(name, doc)
    vars(made).update(names, __getattr__=others)
    return made


def subvals(x: Iterable[object], ivs: Iterable[tuple[int, Any]]) -> tuple[Pytree, ...]:
    found = list(x)
    for place, value in ivs:
        found[place] = value
    return tuple(found)


def subval(x: Iterable[object], i: int, v: Pytree) -> tuple[Pytree, ...]:
    return subvals(x, [(i, v)])


def func(f: F) -> F:
    return f


def quick_grad_check(
    fun: Fun,
    arg0: Pytree,
    extra_args: Sequence[Pytree] = (),
    kwargs: dict[str, Any] | None = None,
    **_: object,
) -> None:
    """Check the gradient with respect to the first argument, as `check_grads` does."""
    from tapegraph.autograd.test_util import check_grads  # imported here to avoid a circle

    warn("quick_grad_check: deprecated, as in autograd; write check_grads", UserWarning)
    check_grads(lambda x: fun(x, *extra_args, **(kwargs or {})), modes=["rev"], order=1)(arg0)

"""Flattening, optimizers and fixed points."""

from __future__ import annotations

import functools
from typing import Any

from tapegraph.autograd.misc.flatten import flatten as flatten
from tapegraph.typed import Fun, Pytree


def const_graph(fun: Fun, *args: Pytree, **kwargs: Any) -> Fun:
    """Return a function with its first arguments bound; it runs anew at every call."""
    return functools.wraps(fun)(functools.partial(fun, *args, **kwargs))

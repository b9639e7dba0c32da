"""Flattening, optimizers and fixed points."""

from __future__ import annotations

import functools

from tapegraph.autograd.misc.flatten import flatten as flatten
from tapegraph.typed import Fun, Pytree


def const_graph(fun: Fun, *args: Pytree, **kwargs: object) -> Fun:
    """Return a function with its first arguments bound; it runs anew at every call."""
    return functools.wraps(fun)(functools.partial(fun, *args, **kwargs))

"""Flattening, optimizers and fixed points."""

from __future__ import annotations

import functools
from typing import Any

from tapegraph.autograd.misc.flatten import flatten as flatten
from tapegraph.typed import Fun, Pytree


def const_graph(fun: Fun, *args: Pytree, **kwargs: Any) -> Fun:
    """Return a function with its first arguments given.

    autograd records it once and runs the record; here the function itself runs, at every call.
    `tapegraph.compile` records a step once.
    """
    return functools.wraps(fun)(functools.partial(fun, *args, **kwargs))

"""`const_graph`, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return a function with its first arguments given.

    What autograd records once, and then runs without the function's Python code, is the function
    itself here: the same values, at every call those of its present inputs. `tapegraph.compile`
    records a step once.
    """
    return functools.wraps(fun)(functools.partial(fun, *args, **kwargs))

"""Make changes of state together: a signal interrupts before or after all of them.

Python runs signal handlers between its own instructions, never inside a call of C code. So changes
are computed first, each as a call of C code, and one call of C code then makes them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from operator import methodcaller
from typing import Any

from tapegraph.recording.node import Node, next_seq

# A call of C code, such as `set_array`, `setattr` or `operator.setitem`.
Change = Callable[[], Any]
# The undo log, the last change first; a commit empties it.
Undo = deque[Change]

# Set a node's array, bypassing its class.
set_array: Any = Node.__dict__["_array"].__set__
set_changed: Any = Node.__dict__["_changed"].__set__
set_gradient: Any = Node.__dict__["_grad"].__set__
set_class: Any = object.__dict__["__class__"].__set__

# Make changes prepared by `together`, in one call.
make: Callable[[Iterable[Any]], None] = deque[Any](maxlen=0).extend
_call = methodcaller("__call__")


def together(changes: Iterable[Change]) -> Iterator[Any]:
    """Prepare changes for `make`: those listed by then, each made once."""
    return map(_call, chain.from_iterable((changes,)))


def take_back(undo: Undo) -> None:
    make(together(undo))
    undo.clear()


def new_numbers(leaf: Node, array: object) -> list[Change]:
    return [partial(set_array, leaf, array), partial(set_changed, leaf, next_seq())]


def all_new_numbers(leaves: list[Any], arrays: list[Any]) -> list[Change]:
    return [
        partial(make, map(set_array, leaves, arrays)),
        partial(make, map(set_changed, leaves, repeat(next_seq()))),
    ]


def old_numbers(leaf: Node) -> Change:
    """Log a leaf's present numbers, to undo later changes."""
    parts = [
        partial(set_array, leaf, leaf._array),
        partial(set_changed, leaf, getattr(leaf, "_changed", 0)),
    ]
    return partial(make, map(_call, parts))

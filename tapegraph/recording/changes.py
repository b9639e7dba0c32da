"""Changes of state that happen together, wherever a signal falls.

Python runs signal handlers between its own instructions: as a function begins, when a call has
returned, and where a loop turns back. A call of what is written in C has no such place inside. So
changes are computed first, each as a call of C code, and then one call of C code makes them all:
an exception that a handler raises finds none of them made, or every one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from operator import methodcaller
from typing import Any

from tapegraph.recording.node import Node, next_seq

# A call of what is written in C, such as `set_array`, `setattr` or `operator.setitem`.
Change = Callable[[], Any]
# What takes back the changes that have been made, the last one first; a commit empties it.
Undo = deque[Change]

# Write what a node holds, whatever its class makes of the name.
set_array: Any = Node.__dict__["_array"].__set__
set_changed: Any = Node.__dict__["_changed"].__set__
set_gradient: Any = Node.__dict__["_grad"].__set__
set_class: Any = object.__dict__["__class__"].__set__

# Make changes that `together` has put in a row: the one call.
make: Callable[[Iterable[Any]], None] = deque[Any](maxlen=0).extend
_call = methodcaller("__call__")


def together(changes: Iterable[Change]) -> Iterator[Any]:
    """Return changes as `make` takes them: as many as there are then, and each of them once."""
    return map(_call, chain.from_iterable((changes,)))


def take_back(undo: Undo) -> None:
    """Take back what has been done so far, and begin anew."""
    make(together(undo))
    undo.clear()


def new_numbers(leaf: Node, array: Any) -> list[Change]:
    """Give a leaf other numbers: an array that nobody else holds."""
    return [partial(set_array, leaf, array), partial(set_changed, leaf, next_seq())]


def all_new_numbers(leaves: list[Any], arrays: list[Any]) -> list[Change]:
    """Give many leaves other numbers, as `new_numbers` does one."""
    return [
        partial(make, map(set_array, leaves, arrays)),
        partial(make, map(set_changed, leaves, repeat(next_seq()))),
    ]


def old_numbers(leaf: Node) -> Change:
    """Take back what gives a leaf other numbers from here on."""
    parts = [
        partial(set_array, leaf, leaf._array),
        partial(set_changed, leaf, getattr(leaf, "_changed", 0)),
    ]
    return partial(make, map(_call, parts))

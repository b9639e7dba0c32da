"""Tensors that a recorded call left behind in an attribute or a list: no later run makes them anew.

Their numbers would stay those of the first calls. They can be read until a run takes the place of
the function; from then on reading them is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from weakref import ref

from tapegraph.errors import line_of, message
from tapegraph.recording.node import Node
from tapegraph.recording.remote import offload
from tapegraph.recording.tape import clear, current


def leaked(since: int, inputs: Iterable[ref[Node]]) -> list[ref[Node]]:
    """Return the live results that were recorded after a point in time, and the live inputs."""
    current().prune()  # of what the call recorded, hardly anything is left
    results = [node for node in current().live() if node._inputs and node._seq > since]
    return [*map(ref, results), *(held for held in inputs if held() is not None)]


def expire(tensors: list[ref[Node]], name: str) -> None:
    """Make it an error to read tensors of a function's recorded calls."""
    for held in tensors:
        node = held()
        if node is not None:
            what = f"a result of {node._op.name}" if node._inputs else "an input"
            code = getattr(node, "_code", None)
            place = "" if code is None else f", recorded at {line_of(code, node._lasti)}"
            received = f"{what} of an earlier call{place}"
            if node._inputs:
                clear(node)
            offload(node, partial(_refuse, name, received), comes_back=False)


def _refuse(name: str, received: str) -> Any:
    expected = "what the function returns: runs of its program make no other tensors"
    raise RuntimeError(message(f"compile: {name}", received, expected, "Return it."))

"""A tree of tensors, arrays and numbers as named arrays and JSON, and back.

In the JSON a dict is ``{"dict": {...}}``, a tuple ``{"tuple": [...]}``, an array
``{"array": name}``, a NumPy scalar ``{"scalar": name}``; all else is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tapegraph.errors import kind_of, message
from tapegraph.optim.optimizer import Optimizer
from tapegraph.pytree import named, parts_of
from tapegraph.recording.node import Node
from tapegraph.recording.op import CLEARED
from tapegraph.saving.formats import TEXT, NamedArrays
from tapegraph.tensors.value import Value
from tapegraph.typed import Array

# What is looked for in a tree that is saved, or that a file is loaded into.
HELD = (Node, Value, np.ndarray, Optimizer)


class Flattened:
    """The arrays of a tree, by name, and its structure.

    A tensor or array that stands in several places is there once, by its first name.
    """

    def __init__(self, op: str, tree: Any, check: Callable[[str, Any], None]) -> None:
        self._op, self._check = op, check
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no other gets its id
        self.arrays: NamedArrays = {}
        self.structure = self._of(tree, "")

    def _of(self, value: Any, name: str) -> Any:
        if isinstance(value, Optimizer):
            return self._of(value.state_dict(), name)
        if isinstance(value, (Node, Value, np.ndarray)):
            return {"array": self._array(value, name)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(value, name)}
        if value is None or isinstance(value, (str, int, float)):
            return value
        parts = parts_of(value) or ()
        if isinstance(value, (list, tuple)):
            row = [self._of(part, _join(name, key)) for key, part in parts]
            return {"tuple": row} if isinstance(value, tuple) else row
        if not isinstance(value, Mapping):  # an object, by the paths inside
            found = named(self._op, value, HELD) if parts else []
            parts = [(key, leaf) for key, leaf in found if is_leaf(leaf)]
            if not parts:
                expected = "tensors, arrays, numbers, strings, and what holds them"
                received = f"{kind_of(value)} at {name!r}"
                raise TypeError(message(self._op, received, expected))
        made = {}
        for key, part in parts:
            if not isinstance(key, str):
                received = f"{key!r} as a name in {name!r}"
                raise TypeError(message(self._op, received, "names that are strings"))
            made[key] = self._of(part, _join(name, key))
        return {"dict": made}

    def _array(self, value: Any, name: str) -> str:
        if id(value) in self._names:
            return self._names[id(value)]
        if name in self.arrays or name in ("", TEXT) or "\0" in name:
            received = f"a second {name!r}" if name in self.arrays else f"an array named {name!r}"
            raise ValueError(message(self._op, received, "a path of its own", "Rename its key."))
        if isinstance(value, np.ma.MaskedArray):
            received = f"a masked array at {name!r}, whose mask would be dropped"
            raise TypeError(message(self._op, received, "an array without a mask"))
        array = numbers_of(value)
        self._check(name, array.dtype)
        # The writer of safetensors takes any memory for C-ordered.
        self.arrays[name] = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        self._names[id(value)] = name
        self._kept.append(value)
        return name


def is_leaf(x: Any) -> bool:
    """Return whether it is something that was not computed from others."""
    if isinstance(x, Node):
        return not x._inputs and x._op is not CLEARED
    return not (isinstance(x, Value) and x.args)


def numbers_of(leaf: Any) -> Array:
    """Return the numbers of a tensor, Value or array, which the caller must not change."""
    held = leaf._array if isinstance(leaf, Node) else leaf
    return np.asarray(held.data if isinstance(held, Value) else held)


def built(structure: Any, arrays: NamedArrays) -> Any:
    """Return the tree again, or raise where structure and arrays do not belong together."""
    missing = set(arrays)
    tree = _built(structure, arrays, missing)
    if missing:
        raise ValueError(f"it has no place for {sorted(missing)}")
    return tree


def _built(node: Any, arrays: NamedArrays, missing: set[str]) -> Any:
    if isinstance(node, list):
        return [_built(part, arrays, missing) for part in node]
    if not isinstance(node, dict):
        return node
    ((kind, held),) = node.items()
    if kind == "dict":
        return {key: _built(part, arrays, missing) for key, part in held.items()}
    if kind == "tuple":
        return tuple(_built(part, arrays, missing) for part in held)
    if kind not in ("array", "scalar"):
        raise ValueError(f"{kind!r} is no kind of structure")
    missing.discard(held)
    return arrays[held] if kind == "array" else arrays[held][()]


def nodes(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield everything in a loaded tree by its path, dicts and lists too."""
    yield name, tree
    if isinstance(tree, (dict, list, tuple)):
        for key, part in parts_of(tree) or ():
            yield from nodes(part, _join(name, key))


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)

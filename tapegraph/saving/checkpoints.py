"""`save` and `load`: a tree to a file and back, into a model where wanted, all of it or nothing.

A tree stands in a file as named arrays and JSON. There a dict is ``{"dict": {...}}``, a tuple
``{"tuple": [...]}``, an array ``{"array": name}``, a NumPy scalar ``{"scalar": name}``; all else is
itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import setitem
from types import EllipsisType
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import own
from tapegraph.errors import kind_of, message, path_of
from tapegraph.optim.optimizer import Optimizer, changes_to
from tapegraph.pytree import named, parts_of
from tapegraph.recording.capture_mode import check_outside
from tapegraph.recording.changes import Change, make, new_numbers, together
from tapegraph.recording.node import Node
from tapegraph.recording.op import CLEARED
from tapegraph.saving import files
from tapegraph.scalars.state import DATA
from tapegraph.tensors.value import Value
from tapegraph.typed import Array

# Under which the structure stands among the metadata.
_KEY = "tapegraph"
# What is looked for in a tree that is saved, or that a file is loaded into.
_HELD = (Node, Value, np.ndarray, Optimizer)


def save(
    path: str | os.PathLike[str], tree: object, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, arrays and numbers to a file, by which the old one is replaced at once.

    The file is written beside the target, synced and renamed: after a crash it is the old one or
    the new one. Other programs read it too, each array under its dotted path: nothing is pickled.

    :param path: Ends in ``.safetensors``, which needs the extra ``io``, or in ``.npz``.
    :param tree: Holds tensors, Values, arrays, NumPy scalars, numbers, strings, booleans and None,
        in dicts, lists and tuples. An optimizer stands for its ``state_dict()``; any other object
        for the tensors and arrays in it, by their paths (`parameters`).
    :param metadata: Text for people and other programs; ``load(path, return_metadata=True)`` gives
        it back.
    :raises TypeError: Something in the tree has no place in such a file; it is named.
    :raises ValueError: The suffix is another, or two arrays have one path.
    :raises OSError: The file cannot be written. It is then as it was.
    :raises ImportError: The suffix is ``.safetensors`` and the package is missing.
    :raises RuntimeError: It is called inside a compiled step.

    >>> import os, tempfile
    >>> model = {"w": tg.param([1.0, 2.0]), "b": tg.param(0.5)}
    >>> optimizer = tg.SGD(model, lr=0.1, momentum=0.9)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run.npz")
    ...     tg.save(path, {"model": model, "optimizer": optimizer, "epoch": 3})
    ...     saved = tg.load(path)
    >>> saved["model"], saved["epoch"], saved["optimizer"]["lr"]
    ({'w': array([1., 2.]), 'b': array(0.5)}, 3, [0.1, None])
    """
    check_outside("save", "Call it between the runs.")
    name = path_of("save", path, "Write tg.save(path, tree).")
    suffix = files.suffix_of("save", name)
    given = {} if metadata is None else metadata
    pairs = given.items() if isinstance(given, Mapping) else [(given, None)]
    if not all(isinstance(x, str) for pair in pairs for x in pair) or _KEY in given:
        received = f"metadata {metadata!r}"
        expected = f"a dict of strings to strings, without the key {_KEY!r}"
        raise TypeError(message("save", received, expected, "Write json.dumps(value)."))
    _check_is_tree("save", tree)
    flat = _Flattened(tree, partial(files.check_dtype, suffix))
    text = {**given, _KEY: json.dumps(flat.structure)}
    write = files.write_npz if suffix == files.NPZ else files.write_safetensors
    try:
        files.write_file("save", name, partial(write, arrays=flat.arrays, text=text))
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, _failed(name, error)) from error
    except Exception as error:  # the package's own, whatever the system said
        raise OSError(_failed(name, error)) from error


def _check_is_tree(op: str, tree: Any) -> None:
    if isinstance(tree, (Node, Value, np.ndarray, np.generic)):
        fix = 'Write {"w": w}.'
        raise TypeError(message(op, kind_of(tree), "a dict, list, tuple or object", fix))


def _failed(name: str, error: Exception) -> str:
    return message("save", f"{name!r}, which cannot be written ({error})", "a place for the file")


def load(
    path: str | os.PathLike[str], into: object = None, *, return_metadata: bool = False
) -> Any:
    """Read what `save`, or another program, has written; into a model and optimizers if wanted.

    Everything is checked before anything is changed: names, shapes and dtypes must be those of
    ``into``, which is then given all of the numbers.

    :param path: Ends in ``.safetensors``, which needs the extra ``io``, or in ``.npz``.
    :param into: Leaf tensors, Values, arrays and optimizers to be given the numbers of their paths.
        Every array of the file has its place here, or under a path that holds ``...``; other things
        are passed over. What stands in several places needs one of its names in the file.
    :param return_metadata: Whether to return ``(tree, metadata)``.
    :returns: Object. The tree: arrays for tensors, Values and arrays; dicts for objects and
        optimizers; and all else as it was. Of a file by another program, a dict of arrays by name.
    :raises ValueError: The file is cut off or malformed, or holds other names or shapes than
        ``into``.
    :raises TypeError: A dtype is another than in ``into``, or a result stands there.
    :raises OSError: There is no such file, it cannot be read, or it is a directory or a pipe.
    :raises ImportError: The suffix is ``.safetensors`` and the package is missing.
    :raises RuntimeError: It is called inside a compiled step.

    >>> import os, tempfile
    >>> model = {"w": tg.param([1.0, 2.0])}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run.npz")
    ...     tg.save(path, {"model": model, "random": tg.random.get_state()})
    ...     model["w"].assign([0.0, 0.0])
    ...     saved = tg.load(path, into={"model": model})
    >>> tg.random.set_state(saved["random"])
    >>> model["w"]
    Tensor([1., 2.], op='param')
    """
    check_outside("load", "Call it between the runs.")
    _check_is_tree("load", into)
    name = path_of("load", path, "Write tg.load(path, into=tree).")
    suffix = files.suffix_of("load", name)
    read = files.read_npz if suffix == files.NPZ else files.read_safetensors
    data = files.read_file(name)
    try:
        arrays, text = read(data)
        structure = text.pop(_KEY, None)
        tree = arrays if structure is None else _built(json.loads(structure), arrays)
    except Exception as error:  # whatever the bytes make a reader stumble over
        received = f"{name!r}, which is malformed ({type(error).__name__}: {error})"
        raise ValueError(message("load", received, f"a whole {suffix} file")) from error
    if into is not None:
        make(together(list(_changes(name, tree, into))))
    return (tree, text) if return_metadata else tree


def _changes(path: str, tree: Any, into: Any) -> Iterator[Change]:
    """Yield what gives the numbers of a tree to a model, everything checked."""
    found = dict(_nodes(tree))
    arrays = {name: part for name, part in found.items() if isinstance(part, np.ndarray)}
    places: dict[int, tuple[Any, list[str]]] = {}
    for name, leaf in named("load", into, (*_HELD, EllipsisType)):
        key = id(name) if leaf is ... else id(leaf)
        places.setdefault(key, (leaf, []))[1].append(name)
    taken: set[int] = set()
    for leaf, names in places.values():
        given = [name for name in names if name in found]
        if not given and leaf is not ...:
            if not _is_leaf(leaf):  # an object may keep what it has computed
                continue
            raise ValueError(_other(path, f"no {names[0]!r}", "one that has it"))
        if leaf is ... or isinstance(leaf, Optimizer):
            start = f"{names[0]}." if names[0] else ""
            taken |= {id(array) for name, array in arrays.items() if f"{name}.".startswith(start)}
            if leaf is not ...:
                op = f"load: {path!r}: {type(leaf).__name__}"
                yield from changes_to(leaf, found[given[0]], op)
            continue
        taken |= {id(found[name]) for name in given}
        yield from _filled(path, leaf, given, [np.asarray(found[name]) for name in given])
    unknown = [name for name, array in arrays.items() if id(array) not in taken]
    if unknown:
        fix = 'Write {"model": model, "optimizer": ...} to leave a part of a file alone.'
        expected = "those of `into` alone"
        raise ValueError(_other(path, ", ".join(map(repr, unknown)), expected, fix))


def _filled(path: str, leaf: Any, names: list[str], arrays: list[Any]) -> list[Change]:
    """Return what gives a tensor, Value or array new numbers."""
    name, array = names[0], arrays[0]
    if any(other.tobytes() != array.tobytes() for other in arrays[1:]):
        received = f"different numbers for {' and '.join(map(repr, names))}"
        raise ValueError(_other(path, received, "the same, as they are one tensor here"))
    if not _is_leaf(leaf):
        fix = "Load into what it was computed from."
        raise TypeError(message("load", f"a result at {name!r}", "leaves in `into`", fix))
    held = _numbers_of(leaf)
    if array.shape != held.shape:
        raise ValueError(_other(path, f"shape {array.shape} for {name!r}", f"shape {held.shape}"))
    if array.dtype != held.dtype:
        raise TypeError(_other(path, f"dtype {array.dtype} for {name!r}", f"dtype {held.dtype}"))
    if isinstance(leaf, Value):
        return [partial(setattr, leaf, DATA, float(array))]
    if isinstance(leaf, Node):
        return new_numbers(leaf, own(array))
    if not leaf.flags.writeable:
        raise ValueError(message("load", f"a read-only array at {name!r}", "one to be filled"))
    return [partial(setitem, leaf, ..., array)]


def _other(path: str, received: str, expected: str, fix: str = "") -> str:
    return message("load", f"{path!r} with {received}", expected, fix)


# Trees


class _Flattened:
    """The arrays of a tree, by name, and its structure.

    A tensor or array that stands in several places is there once, by its first name.
    """

    def __init__(self, tree: Any, check: Callable[[str, Any], None]) -> None:
        self._check = check
        self._names: dict[int, tuple[str, Any]] = {}  # and the array, so that no other gets its id
        self.arrays: files.NamedArrays = {}
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
            found = named("save", value, _HELD) if parts else []
            parts = [(key, leaf) for key, leaf in found if _is_leaf(leaf)]
            if not parts:
                expected = "tensors, arrays, numbers, strings, and what holds them"
                received = f"{kind_of(value)} at {name!r}"
                raise TypeError(message("save", received, expected))
        made = {}
        for key, part in parts:
            if not isinstance(key, str):
                received = f"{key!r} as a name in {name!r}"
                raise TypeError(message("save", received, "names that are strings"))
            made[key] = self._of(part, _join(name, key))
        return {"dict": made}

    def _array(self, value: Any, name: str) -> str:
        if id(value) in self._names:
            return self._names[id(value)][0]
        if name in self.arrays or name in ("", files.TEXT) or "\0" in name:
            received = f"a second {name!r}" if name in self.arrays else f"an array named {name!r}"
            raise ValueError(message("save", received, "a path of its own", "Rename its key."))
        if isinstance(value, np.ma.MaskedArray):
            received = f"a masked array at {name!r}, whose mask would be dropped"
            raise TypeError(message("save", received, "an array without a mask"))
        array = _numbers_of(value)
        self._check(name, array.dtype)
        # The writer of safetensors takes any memory for C-ordered.
        self.arrays[name] = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        self._names[id(value)] = name, value
        return name


def _is_leaf(x: Any) -> bool:
    """Return whether it is something that was not computed from others."""
    if isinstance(x, Node):
        return not x._inputs and x._op is not CLEARED
    return not (isinstance(x, Value) and x.args)


def _numbers_of(leaf: Any) -> Array:
    """Return the numbers of a tensor, Value or array, which the caller must not change."""
    held = leaf._array if isinstance(leaf, Node) else leaf
    return np.asarray(held.data if isinstance(held, Value) else held)


def _built(structure: Any, arrays: files.NamedArrays) -> Any:
    """Return the tree again, or raise where structure and arrays do not belong together."""
    missing = set(arrays)
    tree = _part(structure, arrays, missing)
    if missing:
        raise ValueError(f"it has no place for {sorted(missing)}")
    return tree


def _part(node: Any, arrays: files.NamedArrays, missing: set[str]) -> Any:
    if isinstance(node, list):
        return [_part(part, arrays, missing) for part in node]
    if not isinstance(node, dict):
        return node
    ((kind, held),) = node.items()
    if kind == "dict":
        return {key: _part(part, arrays, missing) for key, part in held.items()}
    if kind == "tuple":
        return tuple(_part(part, arrays, missing) for part in held)
    if kind not in ("array", "scalar"):
        raise ValueError(f"{kind!r} is no kind of structure")
    missing.discard(held)
    return arrays[held] if kind == "array" else arrays[held][()]


def _nodes(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield everything in a loaded tree by its path, dicts and lists too."""
    yield name, tree
    if isinstance(tree, (dict, list, tuple)):
        for key, part in parts_of(tree) or ():
            yield from _nodes(part, _join(name, key))


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)

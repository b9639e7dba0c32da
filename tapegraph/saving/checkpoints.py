"""`save` and `load`: a tree to a file and back, into a model where wanted, all of it or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from operator import setitem
from types import EllipsisType
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import own
from tapegraph.errors import kind_of, message, path_of
from tapegraph.optim.optimizer import Optimizer, changes_to
from tapegraph.pytree import named
from tapegraph.recording.capture_mode import check_outside
from tapegraph.recording.changes import Change, make, new_numbers, together
from tapegraph.recording.node import Node
from tapegraph.saving import files, formats
from tapegraph.saving.structure import HELD, Flattened, built, is_leaf, nodes, numbers_of
from tapegraph.scalars.state import DATA
from tapegraph.tensors.value import Value

# Under which the structure stands among the metadata.
_KEY = "tapegraph"


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
    import json

    check_outside("save", "Call it between the runs.")
    name = path_of("save", path, "Write tg.save(path, tree).")
    suffix = formats.suffix_of("save", name)
    given = {} if metadata is None else metadata
    text = dict(given) if isinstance(given, Mapping) else {_KEY: ""}
    if _KEY in text or not all(isinstance(x, str) for pair in text.items() for x in pair):
        received = f"metadata {given!r}"
        expected = f"a dict of strings to strings, without the key {_KEY!r}"
        raise TypeError(message("save", received, expected, "Write json.dumps(value)."))
    if suffix == formats.SAFETENSORS:
        formats.package("save")
    _check_is_tree("save", tree)
    flat = Flattened("save", tree, partial(formats.check_dtype, "save", suffix))
    text[_KEY] = json.dumps(flat.structure)
    write = formats.write_npz if suffix == formats.NPZ else formats.write_safetensors
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
    import json

    check_outside("load", "Call it between the runs.")
    _check_is_tree("load", into)
    name = path_of("load", path, "Write tg.load(path, into=tree).")
    suffix = formats.suffix_of("load", name)
    if suffix == formats.SAFETENSORS:
        formats.package("load")
    read = formats.read_npz if suffix == formats.NPZ else formats.read_safetensors
    data = files.read_file("load", name)
    try:
        arrays, text = read(data)
        structure = text.pop(_KEY, None)
        tree = arrays if structure is None else built(json.loads(structure), arrays)
    except Exception as error:  # whatever the bytes make a reader stumble over
        received = f"{name!r}, which is malformed ({type(error).__name__}: {error})"
        raise ValueError(message("load", received, f"a whole {suffix} file")) from error
    if into is not None:
        make(together(list(_changes(name, tree, into))))
    return (tree, text) if return_metadata else tree


def _changes(path: str, tree: Any, into: Any) -> Iterator[Change]:
    """Yield what gives the numbers of a tree to a model, everything checked."""
    found = dict(nodes(tree))
    arrays = {name: part for name, part in found.items() if isinstance(part, np.ndarray)}
    places: dict[int, tuple[Any, list[str]]] = {}
    for name, leaf in named("load", into, (*HELD, EllipsisType)):
        key = id(name) if leaf is ... else id(leaf)
        places.setdefault(key, (leaf, []))[1].append(name)
    taken: set[int] = set()
    for leaf, names in places.values():
        given = [name for name in names if name in found]
        if not given and leaf is not ...:
            if not is_leaf(leaf):  # an object may keep what it has computed
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
    if not is_leaf(leaf):
        fix = "Load into what it was computed from."
        raise TypeError(message("load", f"a result at {name!r}", "leaves in `into`", fix))
    held = numbers_of(leaf)
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

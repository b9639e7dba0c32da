"""`save` and `load`: a tree to a file and back, into a model if wanted, all of it or nothing.

A file holds a tree as named arrays and JSON: a dict is ``{"dict": {...}}``, a tuple ``{"tuple":
[...]}``, an array ``{"array": name}``, a NumPy scalar ``{"scalar": name}``, a complex number
``{"complex": [real, imaginary]}``, a long integer ``{"integer": "0x..."}``; others are themselves.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import setitem
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from tapegraph.arrays import read_only
from tapegraph.errors import add_note, kind_of, message, path_of
from tapegraph.optim.optimizer import Optimizer, changes_to, state_of
from tapegraph.pytree import mapped, named, parts_of
from tapegraph.recording.node import Node, is_leaf, numeric
from tapegraph.recording.scopes import recorder
from tapegraph.recording.values import Change, make, new_numbers, together
from tapegraph.saving import files
from tapegraph.scalars.recorder import DATA
from tapegraph.tensors.value import Value
from tapegraph.typed import Array, Fun, Pytree

# Under which the structure stands among the metadata.
_KEY = "tapegraph"
# The classes to look for in a tree.
_HELD = (Node, Value, np.ndarray, Optimizer)
# How many levels a saved tree has at most: as many as Python's stack holds when the file is read.
_DEEPEST = 100
# The bits of an integer that Python writes in decimal and reads again, whatever its limit is.
_DECIMAL_BITS = 2000


def save(
    path: str | os.PathLike[str], tree: object, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, arrays and numbers to a file, replacing an old one at once.

    After a crash the file is the old or the new one. Other programs can read it, each array under
    its dotted path: nothing is pickled.

    :param path: Ends in ``.safetensors`` or in ``.npz``.
    :param tree: Dicts, lists and tuples of tensors, Values, arrays, NumPy scalars, numbers,
        strings, booleans and None. An optimizer stands for its ``state_dict()``, any other object
        for the tensors and arrays in it, by their paths (`parameters`). Only safetensors hold
        arrays of bfloat16.
    :param metadata: Text for people and other programs, which ``load(path, return_metadata=True)``
        returns.
    :raises TypeError: The file cannot hold an object in the tree; the message names it.
    :raises ValueError: The suffix is unknown, two arrays have one path, a name is invalid in such a
        file, or the tree holds itself or is too deep.
    :raises OSError: The file cannot be written; it is unchanged.
    :raises RuntimeError: Inside a compiled step.

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
    recorder().outside("save", "Call it between the runs.")
    name = path_of("save", path, "Write tg.save(path, tree).")
    suffix = files.suffix_of("save", name)
    given = {} if metadata is None else metadata
    pairs = given.items() if isinstance(given, Mapping) else [(given, None)]
    if not all(_is_text(x) for pair in pairs for x in pair) or _KEY in given:
        received = f"metadata {metadata!r}"
        expected = f"a dict of strings to strings, in Unicode, without the key {_KEY!r}"
        raise TypeError(message("save", received, expected, "Write json.dumps(value)."))
    _check_is_tree("save", tree)
    flat = _Flattened(tree, partial(files.check_array, suffix))
    text = {**given, _KEY: json.dumps(flat.structure)}
    write = files.write_npz if suffix == files.NPZ else files.write_safetensors
    try:
        files.write_file("save", name, partial(write, arrays=flat.arrays, text=text))
    except OSError as error:
        if error.errno is None:
            raise
        received = f"{name!r}, which cannot be written ({error})"
        refusal = message("save", received, "a path that can be written")
        raise type(error)(error.errno, refusal) from error


def _is_text(x: object) -> bool:
    return isinstance(x, str) and x == x.encode(errors="ignore").decode()


def _check_is_tree(op: str, tree: Pytree) -> None:
    if isinstance(tree, (Node, Value, np.ndarray, np.generic)):
        fix = 'Write {"w": w}.'
        raise TypeError(message(op, kind_of(tree), "a dict, list, tuple or object", fix))


def load(
    path: str | os.PathLike[str], into: object = None, *, return_metadata: bool = False
) -> Any:
    """Read a file of `save` or another program; into a model and optimizers if wanted.

    Everything is checked before anything changes: names, shapes and dtypes must be those of
    ``into``, which then takes all numbers.

    :param path: Ends in ``.safetensors`` or in ``.npz``. bfloat16 is read as float32, and float16
        goes into parameters of float32.
    :param into: Leaf tensors, Values, arrays and optimizers that take the numbers of their paths.
        Every array of the file must have its place here, or under a path that holds ``...``; other
        objects are ignored. An object in several places needs one of its names in the file.
    :param return_metadata: Whether to return ``(tree, metadata)``.
    :returns: The tree: arrays for tensors, Values and arrays; dicts for objects and optimizers; the
        rest unchanged. For a file by another program, a dict of arrays by name. With ``into`` the
        arrays are read-only, as the model holds the same memory.
    :raises ValueError: The file is truncated or malformed, or its names or shapes are not those of
        ``into``.
    :raises TypeError: A dtype differs from ``into``, or NumPy lacks it, such as float8; or ``into``
        holds a result.
    :raises OSError: The file does not exist, cannot be read, or is a directory or a pipe.
    :raises RuntimeError: Inside a compiled step.

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
    recorder().outside("load", "Call it between the runs.")
    _check_is_tree("load", into)
    name = path_of("load", path, "Write tg.load(path, into=tree).")
    suffix = files.suffix_of("load", name)
    read = files.read_npz if suffix == files.NPZ else files.read_safetensors
    files.check_is_file("load", name)
    with open(name, "rb") as file:
        with _naming(name, suffix):
            stored, text = read(file)
            structure = text.pop(_KEY, None)
            tree = stored if structure is None else _built(json.loads(structure), stored)
        places = [] if into is None else _places(name, tree, into)
        with _naming(name, suffix):
            arrays = {part.name: part.read() for part in stored.values()}
            tree = _replaced(tree, lambda part: arrays[part.name], files.Stored)
    if into is not None:
        changes = list(_changes(name, tree, places))
        tree = _replaced(tree, read_only, np.ndarray)
        make(together(changes))
    return (tree, text) if return_metadata else tree


@contextmanager
def _naming(name: str, suffix: str) -> Iterator[None]:
    """Say whether the file is malformed, or which other error its reading met."""
    try:
        yield
    except files.UnreadableDtype as error:
        array, dtype = error.args
        received = f"{name!r} with dtype {dtype} for {_some([array])}"
        fix = "The file is whole: convert the array with the program that has written it."
        raise TypeError(message("load", received, "a dtype that NumPy has", fix)) from error
    except Exception as error:  # whatever the bytes make a reader stumble over
        # A zip file that lies about its places makes the reader seek where no file can have any.
        system = isinstance(error, OSError) and error.errno != errno.EINVAL
        if system or isinstance(error, MemoryError):
            add_note(error, f"load: this happened while {name!r} was read. Nothing has changed.")
            raise
        received = f"{name!r}, which is malformed ({type(error).__name__}: {error})"
        raise ValueError(message("load", received, f"a whole {suffix} file")) from error


def _replaced(tree: Pytree, function: Fun, kind: type) -> Pytree:
    return mapped(lambda part: function(part) if isinstance(part, kind) else part, tree)


# A leaf, optimizer or `...` of `into`, and its names in the file.
_Place: TypeAlias = tuple[Pytree, list[str]]


def _places(path: str, tree: Pytree, into: Pytree) -> list[_Place]:
    found = dict(_nodes(tree))
    arrays = {name: part for name, part in found.items() if isinstance(part, files.Stored)}
    named_in: dict[int, _Place] = {}
    for name, leaf in _named("load", into, (*_HELD, EllipsisType)):
        key = id(name) if leaf is ... else id(leaf)
        named_in.setdefault(key, (leaf, []))[1].append(name)
    places: list[_Place] = []
    taken: set[int] = set()
    for leaf, names in named_in.values():
        given = [name for name in names if name in found]
        if leaf is ... or isinstance(leaf, Optimizer):
            start = "" if leaf is into else f"{names[0]}."
            taken |= {id(array) for name, array in arrays.items() if f"{name}.".startswith(start)}
            if leaf is ...:
                continue
        if not given:
            if not _is_leaf(leaf):  # an object may keep results
                continue
            raise ValueError(_other(path, f"no {names[0]!r}", "one that has it"))
        if not isinstance(leaf, Optimizer):
            for name in given:
                _check_fits(path, leaf, name, found[name])
            taken |= {id(found[name]) for name in given}
        places.append((leaf, given))
    unknown = [name for name, array in arrays.items() if id(array) not in taken]
    if unknown:
        part, _, _ = unknown[0].partition(".")
        inner = (name for _, names in named_in.values() for name in names)
        inside = any(f"{name}.".startswith(f"{part}.") for name in inner)
        fix = f"Write {unknown[0] if inside else part!r}: ... in `into` to leave that part alone."
        raise ValueError(_other(path, _some(unknown), "only those of `into`", fix))
    return places


def _check_fits(path: str, leaf: Pytree, name: str, found: Pytree) -> None:
    if not _is_leaf(leaf):
        fix = "Load into the parameters that it was computed from."
        raise TypeError(message("load", f"a result at {name!r}", "leaves in `into`", fix))
    held = _numbers_of(leaf)
    array = found if isinstance(found, files.Stored) else np.asarray(found)
    if array.shape != held.shape:
        raise ValueError(_other(path, f"shape {array.shape} for {name!r}", f"shape {held.shape}"))
    wanted = held.dtype.newbyteorder("=")
    is_same = array.dtype == wanted or (array.dtype == np.float16 and wanted == np.float32)
    is_half = wanted.name == "bfloat16" and getattr(found, "word", "") == files.BFLOAT16
    if not (is_same or is_half):
        raise TypeError(_other(path, f"dtype {array.dtype} for {name!r}", f"dtype {held.dtype}"))
    if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
        raise ValueError(message("load", f"a read-only array at {name!r}", "a writable array"))


def _changes(path: str, tree: Pytree, places: list[_Place]) -> Iterator[Change]:
    found, kept = dict(_nodes(tree)), set[int]()

    def own(data: Pytree, op: str, argument: str) -> Array:
        """Return an array of the file, which one tensor keeps; a copy for others."""
        if not isinstance(data, np.ndarray) or data.dtype == np.float16 or id(data) in kept:
            return numeric(data, op, argument)  # float32 for float16
        kept.add(id(data))
        return data

    for leaf, names in places:
        first = found[names[0]]
        if isinstance(leaf, Optimizer):
            yield from changes_to(leaf, first, f"load: {path!r}: {type(leaf).__name__}", own)
            continue
        for other in names[1:]:
            if np.asarray(first).tobytes() != np.asarray(found[other]).tobytes():
                received = f"different numbers for {names[0]!r} and {other!r}"
                raise ValueError(_other(path, received, "the same, as they are one tensor here"))
        if isinstance(leaf, Value):
            yield partial(setattr, leaf, DATA, float(first))
        elif isinstance(leaf, Node):
            yield from new_numbers(leaf, own(first, "load", names[0]))
        else:
            yield partial(setitem, leaf, ..., first)


def _named(
    op: str, value: Pytree, held: tuple[type, ...], path: str = ""
) -> list[tuple[str, Pytree]]:
    try:
        return named(op, value, held)
    except RecursionError:
        where = f" at {path!r}" if path else ""
        received = f"{type(value).__name__}{where}, nested deeper than Python's stack"
        raise ValueError(message(op, received, "fewer levels")) from None


def _some(names: Iterable[str]) -> str:
    """Return names as text, the first of many."""
    shown = [repr(name) if len(name) <= 200 else f"{name[:200]!r}..." for name in names]
    return ", ".join(shown if len(shown) <= 10 else [*shown[:10], f"and {len(shown) - 10} more"])


def _other(path: str, received: str, expected: str, fix: str = "") -> str:
    return message("load", f"{path!r} with {received}", expected, fix)


# Trees


class _Flattened:
    """The arrays of a tree, by name, and its structure; a shared array is stored once."""

    def __init__(self, tree: Pytree, check: Callable[[str, Any], None]) -> None:
        self._check = check
        self._names: dict[
            int, tuple[str, Pytree]
        ] = {}  # and the array, so that no other gets its id
        self._around: set[int] = set()  # the ids of the enclosing containers
        self.arrays: files.NamedArrays = {}
        self.structure = self._of(tree, None)

    def _of(self, value: Pytree, name: str | None) -> Pytree:
        if isinstance(value, Optimizer):
            return self._of(state_of(value), name)
        if isinstance(value, (Node, Value, np.ndarray)):
            return {"array": self._array(value, name or "")}
        if isinstance(value, np.generic):
            return {"scalar": self._array(value, name or "")}
        if value is None or isinstance(value, (str, float)):
            return value
        if isinstance(value, int):
            return {"integer": hex(value)} if value.bit_length() > _DECIMAL_BITS else value
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if id(value) in self._around or len(self._around) >= _DEEPEST:
            holds_itself = id(value) in self._around
            received = "which holds itself" if holds_itself else f"{_DEEPEST} levels down"
            received = f"a {type(value).__name__} at {_some([name or ''])}, {received}"
            fix = "Save the part that is wanted, or flatten it."
            raise ValueError(message("save", received, "a tree of fewer levels", fix))
        self._around.add(id(value))
        parts = self._parts(value, name)
        self._around.remove(id(value))
        return parts

    def _parts(self, value: Pytree, name: str | None) -> Pytree:
        parts = parts_of(value) or ()
        if isinstance(value, (list, tuple)):
            row = [self._of(part, _join(name, key)) for key, part in parts]
            return {"tuple": row} if isinstance(value, tuple) else row
        if not isinstance(value, Mapping):  # an object, by the paths inside
            found = _named("save", value, _HELD, name or "") if parts else []
            parts = [(key, leaf) for key, leaf in found if _is_leaf(leaf)]
            if not parts:
                expected = "tensors, arrays, numbers, strings, and dicts, lists and tuples of them"
                received = f"{kind_of(value)} at {name or ''!r}"
                raise TypeError(message("save", received, expected))
        made = {}
        for key, part in parts:
            if not isinstance(key, str):
                received = f"{key!r} as a name in {name or ''!r}"
                raise TypeError(message("save", received, "names that are strings"))
            made[key] = self._of(part, _join(name, key))
        return {"dict": made}

    def _array(self, value: Pytree, name: str) -> str:
        if id(value) in self._names:
            return self._names[id(value)][0]
        if name in self.arrays or name == files.TEXT or "\0" in name or not _is_text(name):
            received = f"a second {name!r}" if name in self.arrays else f"an array named {name!r}"
            raise ValueError(message("save", received, "each name once", "Rename its key."))
        if isinstance(value, np.ma.MaskedArray):
            received = f"a masked array at {name!r}, whose mask would be dropped"
            raise TypeError(message("save", received, "an array without a mask"))
        array = self.arrays[name] = _numbers_of(value)
        self._check(name, array.dtype)
        self._names[id(value)] = name, value
        return name


def _is_leaf(x: object) -> bool:
    if isinstance(x, Node):
        return is_leaf(x)
    return not (isinstance(x, Value) and x.args)


def _numbers_of(leaf: Pytree) -> Array:
    """Return the numbers of a tensor, Value or array, which the caller must not change."""
    held = leaf._array if isinstance(leaf, Node) else leaf
    return np.asarray(held.data if isinstance(held, Value) else held)


def _built(structure: Pytree, stored: dict[str, files.Stored]) -> Pytree:
    """Rebuild the tree, or raise if structure and arrays do not belong together."""
    missing = set(stored)

    def part(node: Pytree) -> Pytree:
        if isinstance(node, list):
            return list(map(part, node))
        if not isinstance(node, dict):
            return node
        ((kind, held),) = node.items()
        if kind == "dict":
            return {key: part(inside) for key, inside in held.items()}
        if kind == "tuple":
            return tuple(map(part, held))
        if kind == "complex":
            return complex(*held)
        if kind == "integer":
            return int(held, 16)
        if kind not in ("array", "scalar"):
            raise ValueError(f"{kind!r} is not a kind of structure")
        missing.discard(held)
        if kind == "array":
            return stored[held]
        if stored[held].shape:
            raise ValueError(f"{held!r} is not a scalar")
        return stored[held].read()[()]

    tree = part(structure)
    if missing:
        raise ValueError(f"its structure has no leaf for {_some(sorted(missing))}")
    return tree


def _nodes(tree: Pytree, name: str | None = None) -> Iterator[tuple[str, Pytree]]:
    """Yield everything in a loaded tree by its path, dicts and lists too."""
    yield name or "", tree
    if isinstance(tree, (dict, list, tuple)):
        for key, part in parts_of(tree) or ():
            yield from _nodes(part, _join(name, key))


def _join(name: str | None, key: object) -> str:
    return str(key) if name is None else f"{name}.{key}"

"""Arguments and results of a compiled function: their structure, and the arrays in it."""

from __future__ import annotations

import inspect
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegraph.compiling.guards import Same, first_difference
from tapegraph.errors import kind_of, message
from tapegraph.pytree import fields_of, statics_of, with_fields
from tapegraph.recording.node import HALF, Node, as_array, numeric
from tapegraph.typed import Fun

ArgSpec = Any
# The arrays and floats of a structure, with their paths.
Found = list[tuple[str, Any]]
_STATIC = (bool, int, str, bytes, type(None), np.bool_)
# The classes of dtypes.
_DTYPES = (bool, int, float)
# Arrays and columns of other libraries have one of these beside `__array__`.
_ARRAYS = ("__dlpack__", "numpy", "__pandas_priority__", "__arrow_c_stream__")


class LeafSpec(NamedTuple):
    """Stands for an array or float in a structure, which is all tuples, so that C compares it."""

    kind: tuple[Any, ...]

    def __repr__(self) -> str:
        kind, *of = self.kind
        if not of:
            return str(kind)
        shape, dtype = of
        text = f"{np.dtype(dtype).name}{list(shape)}"
        return f"tensor {text}" if kind == "tensor" else text


# Stand for a tensor, a `Value` and a float of the program among the results of a call.
RESULT, VALUE, FLOAT = LeafSpec(("tensor",)), LeafSpec(("Value",)), LeafSpec(("float",))
_NOTHING: ArgSpec = (dict, ())
_new: Any = tuple.__new__  # a named tuple's own is written in Python


class Static(NamedTuple):
    """An argument compared by type and value (1, 1.0 and True differ)."""

    kind: Any
    value: Any

    def __repr__(self) -> str:
        is_dtype = isinstance(self.value, (type, np.dtype))
        return np.dtype(self.value).name if is_dtype else repr(self.value)


def of_call(args: Sequence[object], kwargs: dict[str, object], found: Found) -> ArgSpec:
    positional = tuple([flattened(v, f"args[{i}]", found) for i, v in enumerate(args)])
    named = flattened(kwargs, "kwargs", found) if kwargs else _NOTHING
    return (tuple, ((list, positional), named))


def flattened(value: Any, path: str, found: Found, marked: Fun | None = None) -> ArgSpec:
    """Return a value's hashable structure; its arrays and floats go to ``found``, with paths.

    The result of ``marked`` for a part replaces the part. Arrays count by shape and dtype, floats
    by type, a parameter by identity; ints, complex numbers, bools, strings, None and dtypes by
    value.
    """
    if marked is not None:
        value = marked(value)
    kind = type(value)
    if kind is np.ndarray and value.dtype.itemsize != 2:  # as most are; those of two may be halves
        found.append((path, value))
        return _new(LeafSpec, (("array", value.shape, value.dtype),))
    if kind is dict and not value:
        return _NOTHING
    if kind in _STATIC:
        return Static(kind, value)
    if kind is complex:  # by its text, in which a zero has a sign
        return Static((kind, repr(value)), value)
    if kind is LeafSpec:
        found.append((path, value))
        return value
    if isinstance(value, Node):
        if value._requires_grad:
            return (Node, _Parameter(value))
        found.append((path, value._array))
        return LeafSpec(("tensor", value._array.shape, value._array.dtype))
    if isinstance(value, np.ndarray) and not isinstance(value, np.matrix):
        if isinstance(value, np.ma.MaskedArray):
            value = numeric(value, "compile", path)  # which refuses it
        if value.dtype.itemsize == 2 and value.dtype.name in HALF:  # a name takes a microsecond
            value = value.astype(np.float32)
        found.append((path, value))
        return LeafSpec(("array", value.shape, value.dtype))
    if isinstance(value, np.generic):
        found.append((path, np.asarray(value)))
        return LeafSpec(("number", (), value.dtype))
    if kind is float:
        found.append((path, value))
        return FLOAT
    if kind in (dict, OrderedDict):
        for key in value:
            if not isinstance(key, (str, int)):
                received = f"the key {key!r} in {path}"
                raise TypeError(message("compile", received, "keys that are strings or integers"))
        items = (
            (Static(type(k), k), flattened(v, f"{path}[{k!r}]", found, marked))
            for k, v in value.items()
        )
        return (kind, tuple(items))
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        parts = [flattened(v, f"{path}[{i}]", found, marked) for i, v in enumerate(value)]
        return (kind, tuple(parts))
    if (names := fields_of(kind)) is not None:
        parts = [flattened(getattr(value, n), f"{path}.{n}", found, marked) for n in names]
        statics = [_static(getattr(value, n), f"{path}.{n}") for n in statics_of(kind)]
        return (kind, (*parts, *statics))
    is_class = isinstance(value, type) and (value in _DTYPES or issubclass(value, np.generic))
    if is_class or isinstance(value, np.dtype):
        return Static(kind, value)
    ours = isinstance(value, np.ndarray) or hasattr(kind, "__tapegraph_apply__")
    if isinstance(value, (memoryview, array)) or (hasattr(value, "__array__") and not ours):
        numbers = as_array(value, "compile", path)  # which raises for objects without numbers
        if kind in (memoryview, array) or any(hasattr(value, name) for name in _ARRAYS):
            return flattened(numbers, path, found)
    expected = "arrays, numbers, strings, None, and dicts, lists, tuples and dataclasses of them"
    fix = "Reach other objects through the function's closure or self."
    raise TypeError(message("compile", f"{kind_of(value)} for {path}", expected, fix))


def _static(value: Any, path: str) -> Static:
    """Return a static field, compared as an argument is; a tuple of numbers with their types."""
    try:
        hash(value)
    except TypeError:
        expected = "a static field that can be hashed"
        fix = "Write a tuple for a list; make settings a @dataclass(frozen=True)."
        raise TypeError(message("compile", f"{kind_of(value)} for {path}", expected, fix)) from None
    if isinstance(value, (Node, float, complex, tuple, frozenset)):
        return Static((type(value), repr(value)), value)
    return Static(type(value), value)


class _Parameter(Same):
    """A parameter among the arguments: state, compared by identity."""

    __slots__ = ()

    def __repr__(self) -> str:
        name = f" {self.value.name!r}" if self.value.name else ""
        return f"parameter{name} of shape {self.value.shape}"


def rebuilt(structure: ArgSpec, leaf: Callable[[LeafSpec], Any]) -> Any:
    if isinstance(structure, LeafSpec):
        return leaf(structure)
    if isinstance(structure, Static):
        return structure.value
    kind, content = structure
    if kind is Node:
        return content.value
    if kind in (dict, OrderedDict):
        return kind((key.value, rebuilt(part, leaf)) for key, part in content)
    parts = [rebuilt(part, leaf) for part in content]
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*parts)
    return with_fields(kind, parts) if fields_of(kind) is not None else kind(parts)


# As text


def positional_names(fn: Fun) -> list[str]:
    """Return the names of a function's positional parameters; none if it has no signature."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def call_text(name: str, names: list[str], structure: ArgSpec) -> str:
    """Return a call as text: ``step(x: float64[5, 3], k: float, training=True)``."""
    _, ((_, positional), (_, named)) = structure
    texts = [
        _named(names[i], part) if i < len(names) else as_written(part)
        for i, part in enumerate(positional)
    ]
    texts += [_named(key.value, part) for key, part in named]
    return f"{name}({', '.join(texts)})"


def leaf_names(names: list[str], structure: ArgSpec) -> list[str]:
    """Return a name for each array and float of a call, in order: ``x``, ``batch['labels']``."""
    return [name for name, part in _call_parts(names, structure) if isinstance(part, LeafSpec)]


def how_calls_differ(names: list[str], before: ArgSpec, now: ArgSpec) -> str:
    one, two = dict(_call_parts(names, before)), dict(_call_parts(names, now))
    return first_difference(one, two, as_written) or "other arguments"


def _call_parts(names: list[str], structure: ArgSpec) -> Iterator[tuple[str, ArgSpec]]:
    """Yield the arrays, numbers and static values of a call, in order, each with its name."""
    _, ((_, positional), (_, named)) = structure
    for i, part in enumerate(positional):
        yield from _parts(part, names[i] if i < len(names) else f"args[{i}]")
    for key, part in named:
        yield from _parts(part, key.value)


def _parts(structure: ArgSpec, path: str) -> Iterator[tuple[str, ArgSpec]]:
    if isinstance(structure, (LeafSpec, Static)) or structure[0] is Node:
        yield path, structure
        return
    kind, content = structure
    if kind in (dict, OrderedDict):
        keys = [f"[{key.value!r}]" for key, _ in content]
        content = [part for _, part in content]
    elif (fields := fields_of(kind)) is not None:
        keys = [f".{name}" for name in fields + statics_of(kind)]
    else:
        keys = [f"[{i}]" for i in range(len(content))]
    for key, part in zip(keys, content, strict=True):
        yield from _parts(part, path + key)


def _named(name: str, structure: ArgSpec) -> str:
    """Return ``name: type`` for a type, and ``name=value`` for a value."""
    typed = isinstance(structure, LeafSpec) or structure[0] is Node
    return f"{name}{': ' if typed else '='}{as_written(structure)}"


def as_written(structure: ArgSpec) -> str:
    """Return a structure as text, with the types of arrays and floats."""
    if isinstance(structure, (LeafSpec, Static)):
        return repr(structure)
    kind, content = structure
    if kind is Node:
        return repr(content)
    if kind in (dict, OrderedDict):
        return "{" + ", ".join(f"{key!r}: {as_written(part)}" for key, part in content) + "}"
    parts = list(map(as_written, content))
    names = getattr(kind, "_fields", fields_of(kind))  # of a named tuple or a dataclass
    if names is not None:
        names += statics_of(kind)
        fields = zip(names, parts, strict=True)
        return f"{kind.__name__}({', '.join(f'{field}={part}' for field, part in fields)})"
    if kind is list:
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

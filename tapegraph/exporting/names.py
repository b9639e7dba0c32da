"""What a model calls its inputs, its outputs and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tapegraph.compiling.arguments import positional_names
from tapegraph.errors import kind_of, message
from tapegraph.pytree import described
from tapegraph.recording.node import Node, numeric
from tapegraph.tensors.parameters import collected
from tapegraph.typed import Array, Pytree


class Arguments(NamedTuple):
    """A function's arguments: their names, examples of them, and which begin with the batch."""

    names: list[str]
    arrays: list[Array]
    batched: list[bool]


def arguments_of(op: str, f: Callable[..., Any], examples: Sequence[Any], batch: bool) -> Arguments:
    """Return the arguments that examples stand for; a batch is as long as the first of them."""
    if not examples:
        fix = "Pass one per argument: tg.export(f, path, x)."
        raise TypeError(message(op, "no examples", "an array per argument", fix))
    names = positional_names(f)[: len(examples)]
    names += [f"input_{i}" for i in range(len(names), len(examples))]
    arrays = [numeric(x, op, name) for x, name in zip(examples, names, strict=True)]
    lengths = [len(x) for x in arrays if x.ndim]
    if batch and not (lengths and lengths[0]):
        received = "examples of shapes " + ", ".join(str(x.shape) for x in arrays)
        fix = "Pass an example with a leading axis, or batch=False."
        raise ValueError(message(op, received, "a batch of one or more", fix))
    batched = [batch and x.ndim > 0 and len(x) == lengths[0] for x in arrays]
    return Arguments(names, arrays, batched)


def output_names(op: str, result: Any) -> list[str]:
    """Return the names of what a function returns: ``output``, or a dict's keys."""
    if isinstance(result, Mapping):
        names = list(result)
        parts = list(result.values())
    elif isinstance(result, (list, tuple)):
        names = [f"output_{i}" for i in range(len(result))]
        parts = list(result)
    else:
        return ["output"]
    if not all(isinstance(name, str) for name in names) or not all(
        isinstance(part, Node) for part in parts
    ):
        expected = "a tensor, or a dict, list or tuple of tensors, keyed by names"
        raise TypeError(message(op, f"a result of structure {described(result)}", expected))
    return names


class ParameterNames:
    """The names of the parameters in ``params``, or of all that are asked for without it."""

    def __init__(self, op: str, params: Pytree) -> None:
        self._op = op
        self._all = params is None
        self._named: dict[str, Node] = {}
        self._names: dict[int, str] = {}
        if params is not None:
            given: dict[int, tuple[Node, str | None]] = {}
            for name, param in _found(op, params):
                given.setdefault(id(param), (param, name))
            for param, name in given.values():
                self._add(param, name or param.name)

    @property
    def given(self) -> list[Node]:
        """The parameters that have a name by now, in order."""
        return list(self._named.values())

    def of(self, param: Node) -> str | None:
        """Return the name of a parameter; None of one that is to stay a constant."""
        if self._all and id(param) not in self._names:
            self._add(param, param.name)
        return self._names.get(id(param))

    def _add(self, param: Node, name: str | None) -> None:
        name = name or f"parameter_{len(self._named)}"
        if name in self._named:
            fix = "Give them names of their own with tg.param(name=), or pass params as a dict."
            received = f"two parameters named {name!r}"
            raise ValueError(message(self._op, received, "one name each", fix))
        self._named[name] = param
        self._names[id(param)] = name


def _found(op: str, params: Pytree) -> Iterator[tuple[str | None, Node]]:
    """Yield the parameters of a model, under their paths where these hold a name."""
    found = collected(op, params)
    if not found:
        expected = "a dict, list or object that holds parameters"
        raise TypeError(message(op, f"{kind_of(params)} for params", expected))
    for path, param in found.items():
        if not isinstance(param, Node):
            received = f"{kind_of(param)} at {path} of params"
            raise TypeError(message(op, received, "tensors, as tg.param makes them"))
        yield (None if path.replace(".", "").isdigit() else path), param

"""Find the parameters of a model by name, and zero their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tapegraph.errors import kind_of, message
from tapegraph.pytree import leaves, named, parts_of
from tapegraph.recording.node import Node, is_leaf
from tapegraph.recording.op import PARAM
from tapegraph.recording.tape import current
from tapegraph.recording.values import handle_of
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value

_EXPECTED = "a dict, list, tuple or object that holds parameters"


class Parameters(dict[str, "Tensor | Value"]):
    """Parameters by name, each of them once.

    :ivar tied: Further names of parameters in several places, mapped to the first name.
    """

    tied: dict[str, str]


def parameters(model: object) -> Parameters:
    """Return the parameters of a model by their dotted paths.

    A model is a dict, list, tuple or object with attributes, or any nesting of them; its numbers,
    constants, arrays and functions are ignored. A frozen parameter, ``requires_grad_(False)``, is
    among them. One in several places counts once, under its first name.

    :param model: An object that holds leaves made by `param` or `Value`.
    :returns: Dict of str to Tensor or Value in the order of the model, with an attribute ``tied``:
        a dict of further names to the first.
    :raises TypeError: The model is itself a tensor or a number; a dict, list or tuple holds a
        result in place of a parameter; or a key in a parameter's path is no string.
    :raises ValueError: Two parameters have one path, as ``{"a.b": w, "a": {"b": v}}``.

    >>> w, b = tg.param([[1.0, 2.0]]), tg.param(3.0)
    >>> found = tg.parameters({"layers": [{"w": w, "b": b, "act": tg.relu}], "head": w})
    >>> [*found], found.tied
    (['layers.0.w', 'layers.0.b'], {'head': 'layers.0.w'})
    """
    return collected("parameters", model)


def collected(op: str, model: object) -> Parameters:
    if isinstance(model, (Node, Value)):
        raise TypeError(message(op, kind_of(model), _EXPECTED, "Write [w]."))
    for path, leaf in leaves(model):
        if is_result(leaf):
            received = f"a result of {leaf.op} at {path}"
            fix = "Make a leaf of it with tg.param(value)."
            raise TypeError(message(op, received, "parameters made by tg.param or tg.Value", fix))
    found = Parameters()
    found.tied = {}
    names: dict[int, str] = {}
    for name, leaf in named(op, model, (Node, Value)):
        if not is_parameter(leaf):
            continue
        first = names.setdefault(id(leaf), name)
        if name != first:
            found.tied[name] = first
        elif found.setdefault(name, leaf) is not leaf:
            received = f"2 parameters named {name!r}"
            raise ValueError(message(op, received, "one", "Give keys without dots."))
    return found


def is_parameter(p: object) -> bool:
    """Return whether a value is a leaf that gradients flow to, or did before it was frozen."""
    if isinstance(p, Node):
        return is_leaf(p) and (p._requires_grad or p._op is PARAM)
    return isinstance(p, Value) and not p.args


def is_result(p: object) -> bool:
    if isinstance(p, Node):
        return p._requires_grad and not is_leaf(p)
    return isinstance(p, Value) and bool(p.args)


def zero_grad(params: object = None) -> None:
    """Set gradients to zero.

    :param params: Tensors, or a model for `parameters`; by default every live parameter on this
        thread's tape, which does not change.

    >>> x = tg.param(2.0)
    >>> (x * x).backward()
    >>> tg.zero_grad([x])
    >>> float(x.grad)
    0.0
    """
    if params is None:
        chosen = list(map(handle_of, current().params))
    elif isinstance(params, (Node, Value)):
        chosen = [params]
    else:
        params = listed(params)
        members = direct(params)
        chosen = [*collected("zero_grad", params).values()] if members is None else members
    for node in chosen:
        node.zero_grad()


def listed(params: object) -> Any:
    if isinstance(params, (Node, Value)) or parts_of(params) is not None:
        return params
    return list(params) if isinstance(params, Iterable) else params


def direct(params: object) -> list[Any] | None:
    if isinstance(params, Mapping):
        members = list(params.values())
        return members if all(isinstance(p, (Node, Value, np.ndarray)) for p in members) else None
    if not isinstance(params, (list, tuple)):
        return None
    deeper = (p for p in params if not isinstance(p, (Node, Value)))  # of thousands as a rule none
    return None if any(parts_of(p) is not None for p in deeper) else list(params)

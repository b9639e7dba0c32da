"""JVP rules: elements by their places: indexing, gathering, sorting, splitting."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule, linear
from tapegraph.ops import index

JVPS: dict[str, Rule] = {
    "tensor_slice": linear(index.TENSOR_SLICE),
    "gather": linear(index.GATHER),
    "getitem": linear(index.GETITEM),
    "roll": linear(index.ROLL),
    "index": linear(index.INDEX),
    "scatter": linear(index.SCATTER),
}

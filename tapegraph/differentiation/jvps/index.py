"""JVP rules: elements by their places: indexing, gathering, sorting, splitting."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule, linear_in_first
from tapegraph.ops import index

JVPS: dict[str, Rule] = {
    "tensor_slice": linear_in_first(index.TENSOR_SLICE),
    "gather": linear_in_first(index.GATHER),
    "getitem": linear_in_first(index.GETITEM),
    "roll": linear_in_first(index.ROLL),
    "index": linear_in_first(index.INDEX),
    "scatter": linear_in_first(index.SCATTER),
}

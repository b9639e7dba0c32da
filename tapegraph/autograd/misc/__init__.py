"""Flattening, optimizers and fixed points."""

from __future__ import annotations

from tapegraph.autograd.misc.flatten import flatten
from tapegraph.autograd.misc.tracers import const_graph

__all__ = ["const_graph", "flatten"]

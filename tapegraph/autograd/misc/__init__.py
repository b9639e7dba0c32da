"""Flattening, optimizers and fixed points."""

from __future__ import annotations

from tapegraph.autograd.misc.flatten import flatten

__all__ = ["flatten"]

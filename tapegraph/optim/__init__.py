"""Optimizers."""

from __future__ import annotations

from tapegraph.optim.sgd import SGD

__all__ = ["SGD"]

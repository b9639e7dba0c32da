"""Optimizers, learning-rate schedules, clipping of gradients, and SciPy's minimisers."""

from __future__ import annotations

from typing import NoReturn

from tapegraph.optim import schedules
from tapegraph.optim.clipping import clip_grad_norm, clip_grad_value
from tapegraph.optim.implicit import fixed_point, root
from tapegraph.optim.minimizers import minimize
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.update_rules import SGD, Adagrad, Adam, AdamW, Lion, RMSprop
from tapegraph.other_names import missing_in

__all__ = [
    "SGD", "Adagrad", "Adam", "AdamW", "Lion", "Optimizer", "RMSprop", "clip_grad_norm",
    "clip_grad_value", "fixed_point", "minimize", "root", "schedules",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    raise missing_in("optim", name)

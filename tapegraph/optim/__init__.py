"""Optimizers, learning-rate schedules, clipping of gradients, and SciPy's minimisers."""

from __future__ import annotations

from tapegraph.optim import schedules
from tapegraph.optim.adagrad import Adagrad
from tapegraph.optim.adam import Adam, AdamW
from tapegraph.optim.clipping import clip_grad_norm, clip_grad_value
from tapegraph.optim.lion import Lion
from tapegraph.optim.minimizers import minimize
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.rmsprop import RMSprop
from tapegraph.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "Optimizer",
    "RMSprop",
    "clip_grad_norm",
    "clip_grad_value",
    "minimize",
    "schedules",
]

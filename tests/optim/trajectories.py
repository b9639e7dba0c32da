"""Sixty steps of every optimizer and option on one small problem, here and in PyTorch.

``python -m tests.optim.trajectories`` renews ``trajectories.json`` with what PyTorch gives.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import tapegraph as tg

GOLDENS = Path(__file__).with_suffix(".json")
STEPS = 60
KEPT = (1, 2, 4, 30, 60)

# The class, and its options, by the names that both libraries have for them.
CONFIGS = {
    "SGD": ("SGD", {}),
    "SGD decay": ("SGD", {"weight_decay": 0.1}),
    "SGD momentum": ("SGD", {"momentum": 0.9}),
    "SGD momentum decay": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "SGD dampening": ("SGD", {"momentum": 0.9, "dampening": 0.3}),
    "SGD dampening decay": ("SGD", {"momentum": 0.5, "dampening": 0.3, "weight_decay": 0.1}),
    "SGD dampening alone": ("SGD", {"dampening": 0.3}),
    "SGD nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "SGD nesterov decay": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "Adam": ("Adam", {}),
    # Smaller ones make the path so unstable here that PyTorch, started one bit beside, leaves it.
    "Adam betas": ("Adam", {"betas": (0.8, 0.95)}),
    "Adam no betas": ("Adam", {"betas": (0.0, 0.0), "eps": 0.01}),
    "Adam eps": ("Adam", {"eps": 0.1}),
    "Adam decay": ("Adam", {"weight_decay": 0.1}),
    "Adam amsgrad": ("Adam", {"amsgrad": True, "betas": (0.9, 0.5)}),
    "Adam amsgrad decay": ("Adam", {"amsgrad": True, "betas": (0.9, 0.5), "weight_decay": 0.1}),
    "AdamW": ("AdamW", {}),
    "AdamW decay": ("AdamW", {"weight_decay": 0.3}),
    "AdamW no decay": ("AdamW", {"weight_decay": 0.0}),
    "AdamW amsgrad": ("AdamW", {"amsgrad": True, "betas": (0.9, 0.5)}),
    "RMSprop": ("RMSprop", {}),
    "RMSprop alpha": ("RMSprop", {"alpha": 0.5, "eps": 0.1}),
    "RMSprop decay": ("RMSprop", {"weight_decay": 0.1}),
    "RMSprop momentum": ("RMSprop", {"momentum": 0.9}),
    "RMSprop centered": ("RMSprop", {"centered": True}),
    "RMSprop everything": ("RMSprop", {"centered": True, "momentum": 0.5, "weight_decay": 0.1}),
    "Adagrad": ("Adagrad", {}),
    "Adagrad lr_decay": ("Adagrad", {"lr_decay": 0.1}),
    "Adagrad decay": ("Adagrad", {"weight_decay": 0.1}),
    "Adagrad initial": ("Adagrad", {"initial_accumulator_value": 0.5, "eps": 0.01}),
    "Adagrad everything": ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 0.01}),
}
RATES = {"SGD": 0.2, "Adam": 0.05, "AdamW": 0.05, "RMSprop": 0.02, "Adagrad": 0.1, "Lion": 0.02}


def start(dtype=np.float64):
    """Weights, a bias, and what is used now and then only; the data."""
    rng = np.random.default_rng(7)
    arrays = [rng.normal(size=shape) for shape in ((3, 2), (2,), (2,), (7, 3), (7, 2))]
    return [np.asarray(a, dtype) for a in arrays]


def used(step):
    """The third parameter has no gradient at first, and later one of zero for a while."""
    return step >= 3 and not 20 <= step < 25


def rate(kind, step):
    """The learning rate is halved half-way, which tells where it stands in a formula."""
    return RATES[kind] * (0.5 if step >= STEPS // 2 else 1.0)


def loss_of(tanh, mean, w, b, late, x, y, with_late):
    loss = mean((tanh(x @ w + b) - y) ** 2)
    return loss + mean(late**2 * 0.7) if with_late else loss


def ours(kind, options, dtype=np.float64, made=lambda step: step, steps=STEPS):
    """Yield the parameters after each step, which may be made by `tg.compile`."""
    *arrays, x, y = start(dtype)
    params = [tg.param(a) for a in arrays]
    optimizer = getattr(tg, kind)(params, lr=1.0, **options)

    def train(x, y, with_late):
        optimizer.zero_grad()
        loss_of(tg.tanh, tg.mean, *params, x, y, with_late).backward()
        optimizer.step()

    call = made(train)
    for step in range(steps):
        optimizer.lr = rate(kind, step)
        call(x, y, used(step))
        yield [p.numpy() for p in params]
    if call is not train and steps > 4:  # one for each of the two losses
        assert call.traces == 2 and "ran in" in call.explain()


def torchs(kind, options, dtype=np.float64):
    """Yield the parameters after each of PyTorch's steps."""
    import torch

    *arrays, x, y = (torch.tensor(a) for a in start(dtype))
    params = [a.requires_grad_() for a in arrays]
    optimizer = getattr(torch.optim, kind)(params, lr=1.0, **options)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(kind, step)
        optimizer.zero_grad(set_to_none=False)
        loss_of(torch.tanh, torch.mean, *params, x, y, used(step)).backward()
        optimizer.step()
        yield [p.detach().numpy().copy() for p in params]


def flat(params):
    return np.concatenate([p.ravel() for p in params])


def main():
    goldens = {}
    for name, (kind, options) in CONFIGS.items():
        every = [flat(params) for params in torchs(kind, options)]
        goldens[name] = {str(n): every[n - 1].tolist() for n in KEPT}
    rows = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in goldens.items())
    GOLDENS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())

"""Compiled steps of every optimizer give the numbers of eager ones, with clipping and schedules."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.optim import schedules

OPTIMIZERS = {
    "SGD": lambda p: tg.SGD(p, lr=0.1),
    "momentum": lambda p: tg.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: tg.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: tg.Adam(p, lr=0.01),
    "AdamW": lambda p: tg.AdamW(p, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda p: tg.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: tg.Adagrad(p, lr=0.1),
    "Lion": lambda p: tg.Lion(p, lr=0.01),
    "schedule": lambda p: tg.Adam(p, lr=schedules.cosine(0.1, 12)),
    "groups": lambda p: tg.SGD([{"params": p[:1], "lr": 0.01}, {"params": p[1:]}], lr=0.1),
}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 16, 3)), RNG.integers(0, 2, size=(12, 16))


def trained(make, dtype, clip):
    rng = np.random.default_rng(1)
    params = [tg.param(rng.normal(size=s).astype(dtype) * 0.3) for s in ((3, 8), (8,), (8, 2))]
    optimizer = make(params)

    def step(x, classes):
        hidden = tg.tanh(x @ params[0] + params[1])
        loss = tg.softmax_crossentropy(hidden @ params[2], classes)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            tg.clip_grad_norm(params, 0.2)
            tg.clip_grad_value(params, 0.05)
        optimizer.step()
        return loss

    return step, params, optimizer


@pytest.mark.parametrize(
    ("dtype", "clip"),
    [
        (np.float64, True),
        (np.float32, False),
        pytest.param(np.float64, False, marks=pytest.mark.thorough),
        pytest.param(np.float32, True, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.one_in(7)
def test_a_compiled_step_gives_the_numbers_of_an_eager_one(name, dtype, clip):
    with tg.use_backend("native"):
        eager, params, one = trained(OPTIMIZERS[name], dtype, clip)
        step, others, two = trained(OPTIMIZERS[name], dtype, clip)
        compiled = tg.compile(step)
        for i, (x, classes) in enumerate(zip(X.astype(dtype), Y, strict=True)):
            if i == 6 and name not in ("schedule", "groups"):
                one.lr = two.lr = 0.02
            assert eager(x, classes).item() == compiled(x, classes).item()
            for a, b in zip(params, others, strict=True):
                np.testing.assert_array_equal(a.data, b.data)
                np.testing.assert_array_equal(a.grad, b.grad)
    assert compiled.traces == 1
    saved = [o.state_dict() for o in (one, two)]
    np.testing.assert_equal(saved[1], saved[0])

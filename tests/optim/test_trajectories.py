"""Sixty steps of every optimizer and option are PyTorch's.

The numbers in ``trajectories.json`` are PyTorch 2.13's, in float64; they were made by
``python -m tests.optim.trajectories``.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import tapegraph as tg
from tests.optim.trajectories import CONFIGS, GOLDENS, KEPT, STEPS, flat, ours, rate, start, torchs
from tests.quick import in_one, thinned

EVERY = json.loads(GOLDENS.read_text())


def test_every_configuration_has_goldens():
    assert EVERY.keys() == CONFIGS.keys()


@pytest.fixture(params=["eager", pytest.param("compiled", marks=pytest.mark.thorough)])
def made(request):
    """Steps as they are written; compiled ones, which are the same to the bit, with --thorough."""
    return tg.compile if request.param == "compiled" else lambda step: step


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_are_those_that_pytorch_took(name, made):
    every = [flat(params) for params in ours(*CONFIGS[name], made=made)]
    for n in KEPT:
        np.testing.assert_allclose(every[n - 1], EVERY[name][str(n)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", thinned(CONFIGS, 4))  # its numbers are kept, see above
def test_steps_are_those_that_pytorch_takes(name, made):
    pytest.importorskip("torch")
    steps = 0
    every = zip(ours(*CONFIGS[name], made=made), torchs(*CONFIGS[name]), strict=True)
    for mine, torchs_own in every:
        np.testing.assert_allclose(flat(mine), flat(torchs_own), rtol=1e-9, atol=1e-12)
        steps += 1
    assert steps == STEPS


@pytest.mark.parametrize(
    ("name", "dtype"),
    [pytest.param(*row.values, np.float64, marks=row.marks) for row in thinned(EVERY, 3)]
    + [pytest.param(*row.values, np.float32, marks=row.marks) for row in thinned(EVERY, 6)],
)
@pytest.mark.one_in(4)
def test_compiled_steps_are_eager_ones_to_the_bit(name, dtype):
    kind, options = CONFIGS[name]
    with tg.use_backend("native"):
        eager, compiled = (
            # Past the step from which on the rate is another.
            ours(kind, options, dtype, made, steps=STEPS // 2 + 2)
            for made in (lambda f: f, tg.compile)
        )
        for theirs, mine in zip(eager, compiled, strict=True):
            for one, two in zip(theirs, mine, strict=True):
                assert two.dtype == one.dtype == dtype
                np.testing.assert_array_equal(two, one)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", thinned(CONFIGS, 3))
def test_float32_stays_float32_and_near(name, made):
    every = [*ours(*CONFIGS[name], dtype=np.float32, made=made)]
    assert {p.dtype for params in every for p in params} == {np.dtype(np.float32)}
    for n in KEPT:
        np.testing.assert_allclose(flat(every[n - 1]), EVERY[name][str(n)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"betas": (0.8, 0.5)}, {"weight_decay": 0.3}])
def test_lion_is_algorithm_2_of_its_paper(options, made):
    beta1, beta2 = options.get("betas", (0.9, 0.99))
    decay = options.get("weight_decay", 0.0)
    *params, x, y = start()
    means = [np.zeros_like(p) for p in params]
    w, b, late = range(3)
    for step, mine in enumerate(ours("Lion", options, made=made)):
        u = np.tanh(x @ params[w] + params[b])
        back = 2 * (u - y) * (1 - u**2) / u.size
        used = step >= 3 and not 20 <= step < 25
        grads = [x.T @ back, back.sum(0), 0.7 * params[late] if used else np.zeros(2)]
        for i, (theta, g, m) in enumerate(zip(params, grads, means, strict=True)):
            if i == late and step < 3:
                continue
            c = beta1 * m + (1 - beta1) * g
            params[i] = theta - rate("Lion", step) * (np.sign(c) + decay * theta)
            means[i] = beta2 * m + (1 - beta2) * g
        np.testing.assert_allclose(flat(mine), flat(params), rtol=1e-9, atol=1e-12)


DEFAULTS = {
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False},
    "AdamW": {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 1e-2,
        "amsgrad": False,
    },
    "RMSprop": {
        "lr": 1e-2,
        "alpha": 0.99,
        "eps": 1e-8,
        "weight_decay": 0,
        "momentum": 0,
        "centered": False,
    },
    "Adagrad": {
        "lr": 1e-2,
        "lr_decay": 0,
        "weight_decay": 0,
        "initial_accumulator_value": 0,
        "eps": 1e-10,
    },
    "Lion": {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0},
    "SGD": {"momentum": 0, "dampening": 0, "nesterov": False, "weight_decay": 0},
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_are_pytorchs(kind):
    options = {} if kind != "SGD" else {"lr": 0.1}
    mine = getattr(tg, kind)([tg.param(1.0)], **options)
    for name, value in DEFAULTS[kind].items():
        holder = mine.groups[0] if name == "weight_decay" else mine
        assert getattr(holder, name) == value
    if kind == "Lion":  # which PyTorch does not have
        return
    torch = pytest.importorskip("torch")
    defaults = getattr(torch.optim, kind)([torch.zeros(1)], **options).defaults
    assert {name: defaults[name] for name in DEFAULTS[kind]} == DEFAULTS[kind]


@in_one("name", CONFIGS)
def test_values_go_the_same_way_as_tensors(name):
    kind, options = CONFIGS[name]
    v, x = tg.Value(1.5), tg.param(1.5)
    optimizers = [getattr(tg, kind)([p], lr=0.05, **options) for p in (v, x)]
    for _ in range(10):
        for p, optimizer in zip((v, x), optimizers, strict=True):
            optimizer.zero_grad()
            (p * p * p - 2.0 * p).backward()
            optimizer.step()
        assert isinstance(v.data, float)
        assert v.data == pytest.approx(x.item(), rel=1e-13)

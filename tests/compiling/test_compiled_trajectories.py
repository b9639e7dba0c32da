"""Sixty compiled steps of every optimizer and option are PyTorch's, as eager ones are.

The numbers of PyTorch, and live PyTorch, are those of ``tests/optim/trajectories.py``; a parameter
there has no gradient at first, and one of zero for a while later.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import tapegraph as tg
from tests.compiling.test_hazards import engine  # noqa: F401
from tests.optim.trajectories import CONFIGS, GOLDENS, KEPT, STEPS, flat, ours, torchs

EVERY = json.loads(GOLDENS.read_text())
LION = [{}, {"betas": (0.8, 0.5)}, {"weight_decay": 0.3}]


@pytest.mark.parametrize("name", CONFIGS)
def test_compiled_steps_are_those_that_pytorch_took(name, engine):  # noqa: F811
    every = [flat(params) for params in ours(*CONFIGS[name], made=tg.compile)]
    assert len(every) == STEPS
    for n in KEPT:
        np.testing.assert_allclose(every[n - 1], EVERY[name][str(n)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_compiled_steps_are_those_that_pytorch_takes(name):
    pytest.importorskip("torch")
    with tg.use_backend("native"):
        mine = [flat(params) for params in ours(*CONFIGS[name], made=tg.compile)]
    for got, want in zip(mine, torchs(*CONFIGS[name]), strict=True):
        np.testing.assert_allclose(got, flat(want), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", LION, ids=str)
def test_lion_compiled_is_lion_eager(options, dtype):
    """Which PyTorch does not have; tests/optim compares the eager one with its paper."""
    with tg.use_backend("native"):
        pairs = zip(
            ours("Lion", options, dtype, made=tg.compile), ours("Lion", options, dtype), strict=True
        )
        for got, want in pairs:
            np.testing.assert_array_equal(flat(got), flat(want))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "dtype", [pytest.param(np.float64, marks=pytest.mark.thorough), np.float32]
)
def test_natively_compiled_steps_are_eager_ones_to_the_bit(name, dtype):
    with tg.use_backend("native"):
        kind, options = CONFIGS[name]
        compiled = ours(kind, options, dtype, made=tg.compile)
        for got, want in zip(compiled, ours(kind, options, dtype), strict=True):
            for a, b in zip(got, want, strict=True):
                assert a.dtype == b.dtype == dtype
                np.testing.assert_array_equal(a, b)

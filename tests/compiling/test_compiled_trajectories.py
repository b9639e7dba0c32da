"""Sixty compiled steps of every optimizer and option are PyTorch's, in each engine.

The numbers of PyTorch are those of ``tests/optim/trajectories.py``; a parameter there has no
gradient at first, and one of zero for a while later. Against live PyTorch, and to the bit of eager
steps, ``tests/optim/test_trajectories.py`` compares compiled steps beside eager ones.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import tapegraph as tg
from tests.optim.trajectories import CONFIGS, GOLDENS, KEPT, STEPS, flat, ours
from tests.quick import thinned

EVERY = json.loads(GOLDENS.read_text())
LION = [{}, {"betas": (0.8, 0.5)}, {"weight_decay": 0.3}]


@pytest.mark.parametrize("name", thinned(CONFIGS, 16))
@pytest.mark.one_in(2)
def test_steps_in_tensorflow_are_those_that_pytorch_took(name):
    pytest.importorskip("tensorflow")
    compared("tensorflow", name)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", thinned(CONFIGS, 8))  # eager ones are, and to the bit the same
def test_native_steps_are_those_that_pytorch_took(name):
    compared("native", name)


def compared(engine, name):
    with tg.use_backend(engine):
        every = [flat(params) for params in ours(*CONFIGS[name], made=tg.compile)]
    assert len(every) == STEPS
    for n in KEPT:
        np.testing.assert_allclose(every[n - 1], EVERY[name][str(n)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", LION, ids=str)
@pytest.mark.one_in(3)
def test_lion_compiled_is_lion_eager(options, dtype):
    """Which PyTorch does not have; tests/optim compares the eager one with its paper."""
    with tg.use_backend("native"):
        pairs = zip(
            ours("Lion", options, dtype, made=tg.compile), ours("Lion", options, dtype), strict=True
        )
        for got, want in pairs:
            np.testing.assert_array_equal(flat(got), flat(want))

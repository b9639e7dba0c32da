"""Entries with several outputs in TensorFlow: the rule gives a tuple, of which parts are read."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import tapegraph as tg

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not here", allow_module_level=True)

A = np.array([[3.0, 1.0, 0.5], [1.0, -2.0, -1.0], [0.5, -1.0, 4.0]])


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_compiled_step_takes_gradients_through_them(graph_engine, kind):
    w = tg.param(A + (1j * A.T if kind == "complex" else 0.0))

    def step(x):
        w.grad = None
        sign, logarithm = tg.slogdet(w * x)
        loss = logarithm * tg.real(sign) + tg.sum(tg.real(w))
        loss.backward()
        return loss, w.grad

    compiled = tg.compile(step)
    for k in range(1, 6):
        loss, grad = compiled(0.5 * k)
        with tg.use_backend("native"):
            want, slope = step(0.5 * k)
        np.testing.assert_allclose(loss.data, want.data, rtol=1e-9)
        np.testing.assert_allclose(grad, slope, rtol=1e-9)


def test_a_graph_may_read_one_of_them(graph_engine):
    x = tg.param(A)
    tg.slogdet(x).logabsdet.backward()
    np.testing.assert_allclose(x.grad, np.linalg.inv(A).T, rtol=1e-9)

"""Where slices and gathered columns send their gradients, in the graph and natively."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import tapegraph as tg

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"),
]
rng = np.random.default_rng(5)
CUBE = rng.normal(size=(5, 6, 7))
KEYS = {
    "rows": np.s_[1:3],
    "steps": np.s_[1::3, ::2, 6],
    "backwards": np.s_[::-1, 4:0:-2, None, 5:2:-1],
    "one element": np.s_[2, 3, 4],
    "none": np.s_[2:2, ::-1],
    "everything": np.s_[None, :, None],
    "to the ends": np.s_[-1:, -2::-5],
}


def gradients(call, array):
    """Return the gradient in the graph, and natively."""
    found = []
    for backend in ("tensorflow", "native"):
        with tg.use_backend(backend):
            x = tg.param(array)
            y = call(x)
            y.backward(np.arange(1.0, y.size + 1.0).reshape(y.shape))
        assert tg.last_backward().backend == backend
        found.append(x.grad)
    return found


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_slice_sends_its_gradient_back(key):
    graph, native = gradients(lambda x: x[key], CUBE)
    expected = np.zeros_like(CUBE)
    expected[key] = np.arange(1.0, expected[key].size + 1.0).reshape(expected[key].shape)
    np.testing.assert_array_equal(graph, expected)
    np.testing.assert_array_equal(native, expected)


def test_many_columns_add_up_where_they_repeat():
    table, columns = rng.normal(size=(4, 40, 160)), rng.integers(0, 160, 200)
    graph, native = gradients(lambda x: tg.gather(x, columns, axis=2), table)
    expected = np.zeros_like(table)
    np.add.at(expected, np.s_[:, :, columns], np.arange(1.0, 32001.0).reshape(4, 40, 200))
    np.testing.assert_array_equal(graph, expected)
    np.testing.assert_array_equal(native, expected)


LARGE = np.s_[140:10:-3, ::2, 5:]
PAIRS = [(1, 0), (2, 0), (0, 2), (0, 1, 2)]


def test_steps_through_a_large_array():
    array = rng.normal(size=(150, 12, 11))
    graph, native = gradients(lambda x: x[LARGE], array)
    expected = np.zeros_like(array)
    expected[LARGE] = np.arange(1.0, expected[LARGE].size + 1.0).reshape(expected[LARGE].shape)
    np.testing.assert_array_equal(graph, expected)
    np.testing.assert_array_equal(native, expected)


@pytest.mark.parametrize("axes", PAIRS, ids=str)
def test_places_along_several_axes_add_up_where_they_repeat(axes):
    key: list = [slice(None)] * 3
    for axis in axes:
        key[axis] = rng.integers(-CUBE.shape[axis], CUBE.shape[axis], (40, 2))
    key = tuple(key)
    expected = np.zeros_like(CUBE)
    np.add.at(expected, key, np.arange(1.0, CUBE[key].size + 1.0).reshape(CUBE[key].shape))
    for found in gradients(lambda x: x[key], CUBE):
        np.testing.assert_array_equal(found, expected)

"""The graph of a plain backward is fed what NumPy has computed, where that takes less."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from contract import OPERATIONS

import tapegraph as tg
from tapegraph.lowering import GAPS, LOWERINGS
from tapegraph.recording.linearize import linearize

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)


def graph_module():
    from tapegraph.lowering import backward as graph

    return graph


def network(rng, rows=3):
    w, v = tg.param(rng.normal(size=(4, 5))), tg.param(rng.normal(size=(5, 2)))
    h = tg.gelu(tg.tensor(rng.normal(size=(rows, 4))) @ w)
    return tg.mean(tg.softmax(tg.tanh(h) @ v) ** 2)


def fed(recording, **options):
    slots = graph_module().results_fed(recording, **options)
    return [recording.program.ops[slot].name for slot in slots]


def test_large_results_that_are_kept_are_fed_and_the_others_computed_again():
    recording = linearize([network(np.random.default_rng(0))])
    assert fed(recording) == []
    assert fed(recording, least=0) == ["matmul", "tanh", "softmax"]  # what derivatives read
    recording = linearize([network(np.random.default_rng(0), rows=4000)])
    assert fed(recording) == ["matmul", "tanh"]  # those of two columns are small


def both(recording, seeds):
    """Return the gradients of the graph that is fed results, and of the one that is not."""
    module = graph_module()
    results = module.results_fed(recording, least=0)
    graphs = module.Graph(recording, results=results), module.Graph(recording)
    return [graph(recording, seeds) for graph in graphs]


def test_both_give_the_native_gradients():
    recording = linearize([network(np.random.default_rng(1))])
    seeds = [np.array(1.0)]
    for grads in both(recording, seeds):
        for got, want in zip(grads, tg.fallback.gradients(recording, seeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_both_keep_what_is_not_finite():
    x = tg.param([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -2.0, 3.0])
    with np.errstate(all="ignore"):
        y = tg.where(x.data < 2.0, x * x - 0.3 * x + -x, x - 1.0) / x
        recording = linearize([tg.tanh(y) * y + y * x])
    (got,), (want,) = both(recording, [np.ones(8)])
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_large_backward_runs_what_is_fed(graph_engine, monkeypatch):
    module = graph_module()
    arrays = []
    hand_over = module.to_tensorflow
    monkeypatch.setattr(module, "to_tensorflow", lambda a: arrays.append(a) or hand_over(a))
    x = tg.param(np.linspace(-1.0, 1.0, 3 * module.LEAST_FED))
    y = tg.tanh(tg.sin(x))
    tg.sum(y * y).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert sum(a.size == x.size for a in arrays) == 2  # the leaf, and the tanh
    t = np.tanh(np.sin(x.data))
    np.testing.assert_allclose(x.grad, 2 * t * (1 - t * t) * np.cos(x.data), rtol=1e-9, atol=1e-15)


def test_the_gradient_by_a_result_is_that_by_what_is_fed(graph_engine):
    x = tg.param(np.linspace(-1.0, 1.0, 3 * graph_module().LEAST_FED))
    y = tg.sin(x)
    by_y, by_x = tg.gradients(tg.sum(y * y), [y, x])
    np.testing.assert_allclose(by_y.data, 2 * np.sin(x.data), rtol=1e-9)
    np.testing.assert_allclose(by_x.data, 2 * np.sin(x.data) * np.cos(x.data), rtol=1e-9)


def by_parameter(x):
    return x / tg.param(3.0)


@pytest.mark.parametrize(
    "f", [tg.relu, tg.tanh, tg.sigmoid, tg.exp, lambda x: tg.sqrt(tg.relu(x)), by_parameter]
)
def test_a_gradient_that_reads_a_fed_result_reads_no_operand(f):
    v, w = tg.param(np.linspace(0.5, 1.0, 6)), tg.tensor(np.linspace(-0.4, 1.0, 6))
    y = f(v + w)
    recording, seeds = linearize([tg.sum(y * y)]), [np.array(1.0)]
    native = tg.fallback.gradients(recording, seeds)
    module = graph_module()
    graph = module.Graph(recording, results=module.results_fed(recording, least=0))
    w._array[...] = np.nan  # what came before the result is not computed with
    for got, want in zip(graph(recording, seeds), native, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)


def test_which_operations_may_go_to_xla():
    # Not those that XLA joins with others, and those of which it loses a NaN.
    never = {"arcsin", "exp", "log", "log1p", "max", "maximum", "min", "minimum", "sqrt"}
    given = {name for name, row in LOWERINGS.items() if row.xla}
    assert (OPERATIONS | {"clip", "roll"}) - set(GAPS) - never <= given
    assert not never & given

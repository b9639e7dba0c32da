"""The graphs of one structure: each gives the same numbers, and the fastest measured one runs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from contract import OPERATIONS

import tapegraph as tg
from tapegraph.lowering import GAPS
from tapegraph.recording.trace import linearise

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)


def compiled_module():
    from tapegraph.lowering import compiled

    return compiled


def network(rng):
    w, v = tg.param(rng.normal(size=(4, 5))), tg.param(rng.normal(size=(5, 2)))
    h = tg.gelu(tg.tensor(rng.normal(size=(3, 4))) @ w)
    return tg.mean(tg.softmax(tg.tanh(h) @ v) ** 2)


def test_fed_results_are_those_the_gradient_reads():
    recording = linearise([network(np.random.default_rng(0))])
    read = compiled_module().results_read(recording, [])
    names = [recording.program.ops[slot].name for slot in read]
    # Not what only its shape is needed of (pow), nor the root.
    assert names == ["matmul", "gelu", "tanh", "matmul", "softmax"]


@pytest.mark.parametrize("options", [{"results": True}, {"results": True, "xla": True}])
def test_alternatives_give_the_native_gradients(options):
    rng = np.random.default_rng(1)
    recording = linearise([network(rng)])
    module = compiled_module()
    results = module.results_read(recording, [])
    graph = module.Graph(recording, [], **{**options, "results": results})
    seeds = [np.array(1.0)]
    grads = graph(graph.feeds(recording, seeds))
    for got, want in zip(grads, tg.fallback.gradients(recording, seeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("xla", [False, True])
def test_alternatives_keep_what_is_not_finite(xla):
    x = tg.param([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -2.0, 3.0])
    with np.errstate(all="ignore"):
        y = tg.where(x.data < 2.0, x * x - 0.3 * x + -x, x - 1.0)
        y = y if xla else y / x
        recording = linearise([tg.tanh(y) * y + y * x])
    module = compiled_module()
    seeds = [np.ones(8)]
    results = module.results_read(recording, [])
    assert len(results) < sum(map(bool, recording.program.inputs))  # arithmetic is computed again
    graph = module.Graph(recording, [], results=results, xla=xla)
    plain = module.Graph(recording, [])
    (got,), (want,) = (g(g.feeds(recording, seeds)) for g in (graph, plain))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_every_alternative_is_tried_and_the_fastest_stays(graph_engine, monkeypatch):
    module = compiled_module()
    monkeypatch.setattr(module, "ALTERNATIVE", 0.0)
    took = module._Measured.took
    seconds = [3.0, 1.0, 2.0]  # given, since a busy machine measures what it likes

    def timed(measured, _):
        (entry,) = graph_engine.cache.CACHE.entries.values()
        took(measured, seconds[entry.compiled._measured.index(measured)])

    monkeypatch.setattr(module._Measured, "took", timed)
    rng = np.random.default_rng(2)
    w = tg.param(rng.normal(size=(4, 5)))
    data = rng.normal(size=(3, 4))
    want = None
    trials = module.TRIALS + 1
    for _ in range(3 * trials + 5):
        w.zero_grad()
        tg.sum(tg.tanh(tg.tanh(data @ w)) ** 2).backward()
        assert tg.last_backward().backend == "tensorflow"
        want = w.grad.copy() if want is None else want
        np.testing.assert_allclose(w.grad, want, rtol=1e-12)
    (entry,) = graph_engine.cache.CACHE.entries.values()
    assert [m.runs for m in entry.compiled._measured] == [trials, trials + 5, trials]
    assert graph_engine.cache_info().compiles == 1


def test_an_alternative_that_fails_is_left_and_the_step_is_not(graph_engine, monkeypatch):
    module = compiled_module()
    monkeypatch.setattr(module, "ALTERNATIVE", 0.0)

    class Broken(module.Graph):
        def __call__(self, feeds):
            raise RuntimeError("broken")

    monkeypatch.setattr(module.Compiled, "traced", lambda self, p, **o: broken(self, p, o))

    def broken(compiled, program, options):
        return Broken(program, compiled._fed, compiled._fed_scalars, **options)

    x = tg.param(np.array([0.5, 1.0]))
    for step in range(1, 3 * (module.TRIALS + 1)):
        tg.sum(tg.tanh(x) ** 2).backward()
        assert tg.last_backward().backend == "tensorflow"
        t = np.tanh([0.5, 1.0])
        np.testing.assert_allclose(x.grad, step * 2 * t * (1 - t * t), rtol=1e-12)


def test_xla_compiles_are_bounded_in_a_process(graph_engine, monkeypatch):
    module = compiled_module()
    monkeypatch.setattr(module, "ALTERNATIVE", 0.0)
    monkeypatch.setattr(module, "_xla_compiles", module.XLA_LIMIT)
    x = tg.param(np.array([0.5, 1.0]))
    for _ in range(3 * (module.TRIALS + 1)):
        tg.sum(tg.tanh(x) ** 2).backward()
    (entry,) = graph_engine.cache.CACHE.entries.values()
    assert len(entry.compiled._measured) == 2


def test_xla_does_not_square_a_large_divisor(graph_engine, monkeypatch):
    module = compiled_module()
    monkeypatch.setattr(module, "ALTERNATIVE", 0.0)
    x = tg.param(np.array([1e300, 2.0]))
    for _ in range(3 * (module.TRIALS + 1)):
        x.zero_grad()
        (tg.tanh((x - 1.0) / x) * x).backward()
        want = np.tanh(x.data / x.data - 1.0 / x.data)
        want += (1.0 - want**2) / x.data
        np.testing.assert_allclose(x.grad, want, rtol=1e-12)
    (entry,) = graph_engine.cache.CACHE.entries.values()
    assert len(entry.compiled._measured) == 2


def test_every_operation_that_tapegraph_names_itself_has_alternatives():
    ours = OPERATIONS - set(GAPS)
    assert compiled_module().INTERCHANGEABLE == ours


def test_an_operation_that_is_not_known_to_agree_keeps_its_first_graph(graph_engine, monkeypatch):
    module = compiled_module()
    monkeypatch.setattr(module, "ALTERNATIVE", 0.0)
    x = tg.param(np.array([0.5, 1.0]))
    for _ in range(2 * (module.TRIALS + 1)):
        tg.max(tg.tanh(x)).backward()
    (entry,) = graph_engine.cache.CACHE.entries.values()
    assert len(entry.compiled._measured) == 1

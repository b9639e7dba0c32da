"""The graphs of one structure: each gives the same numbers, and the fastest measured one runs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from contract import OPERATIONS

import tapegraph as tg
from tapegraph.engines import tuner
from tapegraph.lowering import GAPS, LOWERINGS
from tapegraph.recording.linearize import linearize

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)


def graph_module():
    from tapegraph.lowering.backward import graph

    return graph


def compiled_module():
    from tapegraph.lowering.backward import variants

    return variants


def network(rng):
    w, v = tg.param(rng.normal(size=(4, 5))), tg.param(rng.normal(size=(5, 2)))
    h = tg.gelu(tg.tensor(rng.normal(size=(3, 4))) @ w)
    return tg.mean(tg.softmax(tg.tanh(h) @ v) ** 2)


def test_fed_results_are_those_the_gradient_reads():
    recording = linearize([network(np.random.default_rng(0))])
    read = compiled_module().results_read(recording, [])
    names = [recording.program.ops[slot].name for slot in read]
    # Not what only its shape is needed of (pow), nor the root.
    assert names == ["matmul", "gelu", "tanh", "matmul", "softmax"]


@pytest.mark.parametrize("options", [{"results": True}, {"results": True, "xla": True}])
def test_alternatives_give_the_native_gradients(options):
    rng = np.random.default_rng(1)
    recording = linearize([network(rng)])
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
        recording = linearize([tg.tanh(y) * y + y * x])
    module = compiled_module()
    seeds = [np.ones(8)]
    results = module.results_read(recording, [])
    assert len(results) < sum(map(bool, recording.program.inputs))  # arithmetic is computed again
    graph = module.Graph(recording, [], results=results, xla=xla)
    plain = module.Graph(recording, [])
    (got,), (want,) = (g(g.feeds(recording, seeds)) for g in (graph, plain))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def at_once(monkeypatch):
    """Let every variant be tried as soon as the one before it has been measured."""
    monkeypatch.setattr(compiled_module(), "VARIANT", 0.0)
    return tuner.POLICY.variant_trials


def the_tuner(graph_engine):
    (entry,) = graph_engine.cache.CACHE.entries.values()
    return entry.compiled.tuner


def test_every_alternative_is_tried_and_the_fastest_stays(graph_engine, monkeypatch):
    trials = at_once(monkeypatch)
    took = tuner.Candidate.took
    seconds = [3.0, 1.0, 2.0]  # given, since a busy machine measures what it likes
    ran = []

    def timed(candidate, _, step):
        number = the_tuner(graph_engine).measured.index(candidate)
        ran.append(number)
        took(candidate, seconds[number], step)

    monkeypatch.setattr(tuner.Candidate, "took", timed)
    calls = []
    call = graph_module().Graph.__call__
    monkeypatch.setattr(
        graph_module().Graph, "__call__", lambda g, feeds: calls.append(g) or call(g, feeds)
    )
    rng = np.random.default_rng(2)
    w = tg.param(rng.normal(size=(4, 5)))
    data = rng.normal(size=(3, 4))
    want = None
    for _ in range(4 * trials + 3 + 5):  # each graph's first run is not measured
        w.zero_grad()
        tg.sum(tg.tanh(tg.tanh(data @ w)) ** 2).backward()
        assert tg.last_backward().backend == "tensorflow"
        want = w.grad.copy() if want is None else want
        np.testing.assert_allclose(w.grad, want, rtol=1e-12)
    assert ran == [0] * trials + [1] * trials + [2] * trials + [0] * trials
    graphs = [candidate.way for candidate in the_tuner(graph_engine).measured]
    assert [calls.count(graph) for graph in graphs] == [2 * trials + 1, trials + 1 + 5, trials + 1]
    assert graph_engine.cache_info().compiles == 1


@pytest.mark.parametrize("fails", ["to be traced", "to run"])
def test_an_alternative_that_fails_is_left_and_the_step_is_not(graph_engine, monkeypatch, fails):
    trials = at_once(monkeypatch)
    module = compiled_module()
    traced = []

    class Broken(module.Graph):
        def __call__(self, feeds):
            raise RuntimeError("broken")

    def broken(compiled, recording, **options):
        traced.append(options)
        if fails == "to be traced":
            raise RuntimeError("broken")
        return Broken(recording, compiled._fed_scalars, **options)

    monkeypatch.setattr(module.Compiled, "_traced", broken)
    x = tg.param(np.array([0.5, 1.0]))
    for step in range(1, 3 * (trials + 1)):
        tg.sum(tg.tanh(x) ** 2).backward()
        assert tg.last_backward().backend == "tensorflow"
        t = np.tanh([0.5, 1.0])
        np.testing.assert_allclose(x.grad, step * 2 * t * (1 - t * t), rtol=1e-12)
    assert [options.get("xla", False) for options in traced] == [False, True]
    assert the_tuner(graph_engine).measured == [the_tuner(graph_engine).first]


def test_xla_compiles_are_bounded_in_a_process(graph_engine, monkeypatch):
    trials = at_once(monkeypatch)
    monkeypatch.setattr("tapegraph.lowering.steps.xla.LIMIT", 0)
    x = tg.param(np.array([0.5, 1.0]))
    for _ in range(3 * (trials + 1)):
        tg.sum(tg.tanh(x) ** 2).backward()
    assert len(the_tuner(graph_engine).measured) == 2


def test_xla_does_not_square_a_large_divisor(graph_engine, monkeypatch):
    trials = at_once(monkeypatch)
    x = tg.param(np.array([1e300, 2.0]))
    for _ in range(3 * (trials + 1)):
        x.zero_grad()
        (tg.tanh((x - 1.0) / x) * x).backward()
        want = np.tanh(x.data / x.data - 1.0 / x.data)
        want += (1.0 - want**2) / x.data
        np.testing.assert_allclose(x.grad, want, rtol=1e-12)
    assert len(the_tuner(graph_engine).measured) == 2


def test_every_operation_that_tapegraph_names_itself_has_alternatives():
    ours = (OPERATIONS | {"roll"}) - set(GAPS)
    assert {name for name, row in LOWERINGS.items() if row.variants} == ours


def test_an_operation_that_is_not_known_to_agree_keeps_its_first_graph(graph_engine, monkeypatch):
    trials = at_once(monkeypatch)
    x = tg.param(np.array([0.5, 1.0]))
    for _ in range(2 * (trials + 1)):
        tg.max(tg.tanh(x)).backward()
    assert len(the_tuner(graph_engine).measured) == 1

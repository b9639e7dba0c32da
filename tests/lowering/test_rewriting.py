"""TensorFlow computes the sums and products that were written, in the order they were written."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import fallback
from tapegraph.lowering.backward import Graph
from tapegraph.lowering.steps import step as step_module
from tapegraph.lowering.steps import xla
from tapegraph.lowering.steps.step_graph import StepGraph
from tapegraph.recording.linearize import linearize
from tests.lowering import forward
from tests.optional import optional
from tests.quick import thinned

optional("tensorflow")

WHOLE = 1.5 * 2.0**52
WHOLE_32 = 1.5 * 2.0**23
POINTS = np.array([0.3, 1.7, 2.5])


def compensated(x):
    """Kahan's sum."""
    total = lost = 0.0
    for i in range(x.shape[0]):
        term = x[i] - lost
        larger = total + term
        lost = (larger - total) - term
        total = larger
    return total


# What is computed, of what, and what it gives: by hand, for NumPy is one of the two compared.
FORMULAS = {
    "to integers": (lambda x: (x + WHOLE) - WHOLE, POINTS, [0.0, 2.0, 2.0]),
    "to integers, from below": (lambda x: (x - WHOLE) + WHOLE, POINTS, [0.0, 2.0, 2.0]),
    "to integers, by an array": (
        lambda x: (x + np.full(3, WHOLE)) - np.full(3, WHOLE),
        POINTS,
        [0.0, 2.0, 2.0],
    ),
    "to integers, reshaped": (
        lambda x: tg.reshape(tg.reshape(x + WHOLE, (3, 1)) - WHOLE, 3),
        POINTS,
        [0.0, 2.0, 2.0],
    ),
    "to integers, in float32": (
        lambda x: (x + WHOLE_32) - WHOLE_32,
        POINTS.astype(np.float32),
        [0.0, 2.0, 2.0],
    ),
    "opposites": (lambda x: (x + 1e17) + -1e17, np.array([2.3]), [0.0]),
    "opposite arrays": (
        lambda x: (x + np.full(1, 1e17)) + np.full(1, -1e17),
        np.array([2.3]),
        [0.0],
    ),
    "opposites of a smaller shape": (
        lambda x: ((x + np.full((1, 2), 1e17)) + np.ones((3, 2))) + np.full((1, 2), -1e17),
        np.array([[2.3, 1.0]]),
        np.zeros((3, 2)),
    ),
    "a product that overflows": (
        lambda x: (x * 1e30) * 1e-30,
        np.array([1e20, 2.0], np.float32),
        [np.inf, 2.0],
    ),
    "a product that vanishes": (
        lambda x: (x * 1e-200) * (x * 1e-200) * 1e300 * 1e100,
        np.array([0.4, 3.0]),
        [0.0, 0.0],
    ),
    "a quotient of a product": (
        lambda x: (x * 1e200) / 1e200,
        np.array([1e200, 2.0]),
        [np.inf, 2.0],
    ),
    "the root of a square": (lambda x: tg.sqrt(x * x), np.array([1e200, -2.0]), [np.inf, 2.0]),
    "a compensated sum": (
        lambda x: compensated(x),
        np.array([1.0, *[1e-16] * 10]),
        1.0 + 1e-15,
    ),
}


@pytest.fixture(params=FORMULAS)
def formula(request):
    return FORMULAS[request.param]


@pytest.fixture(params=["graph", "with XLA"])
def variant(request, monkeypatch):
    """Run every step in one of the two graphs, the second where XLA is given the step."""

    class Chosen(StepGraph):
        def __init__(self, recording, variables, inputs):
            with_xla = request.param == "with XLA" and not xla.refusal(recording, "auto")
            super().__init__(recording, variables, inputs, with_xla=with_xla)

    monkeypatch.setattr(step_module, "StepGraph", Chosen)
    return request.param


def test_numpy_gives_what_is_expected(formula):
    f, x, expected = formula
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(f(x), np.asarray(expected, x.dtype))


@np.errstate(all="ignore")
@pytest.mark.one_in(6, of="with XLA")
def test_a_compiled_step_computes_what_was_written(formula, variant, monkeypatch):
    f, x, expected = formula
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with tg.use_backend("tensorflow"):
        step = tg.compile(lambda x: f(x) + np.zeros(np.shape(expected), x.dtype), verify_every=None)
        for _ in range(4):
            got = step(x)
        # With XLA what is not finite is left to the graph, which here is not there to take over.
        if variant == "graph" or np.isfinite(expected).all():
            assert "ran in tensorflow" in step.explain()
    np.testing.assert_array_equal(got, np.asarray(expected, x.dtype))


GRADIENTS = [name for name, (_, _, expected) in FORMULAS.items() if np.isfinite(expected).all()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", thinned(GRADIENTS, 2))
def test_a_gradient_inside_a_compiled_step(name, variant):
    f, x, _ = FORMULAS[name]
    w = tg.param(x)

    def step():
        w.grad = None
        tg.sum(tg.cos(f(w))).backward()
        return w.grad

    eager = step()
    with tg.use_backend("tensorflow"):
        compiled = tg.compile(step, verify_every=None)
        for _ in range(4):
            got = compiled()
        assert "ran in tensorflow" in compiled.explain()
    np.testing.assert_allclose(got, eager, rtol=1e-5 if x.dtype == np.float32 else 1e-9)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_of_a_plain_backward(name):
    f, x, _ = FORMULAS[name]
    recording = linearize([tg.sum(tg.cos(f(tg.param(x))))])
    seed = [np.ones((), x.dtype)]
    (native,) = fallback.gradients(recording, seed)
    (got,) = Graph(recording)(recording, seed)
    np.testing.assert_allclose(got, native, rtol=1e-5 if x.dtype == np.float32 else 1e-9)


def test_the_sine_of_integers_has_a_cosine_of_integers(graph_engine):
    x = tg.param(POINTS)
    tg.sum(tg.sin((x + WHOLE) - WHOLE)).backward()
    assert tg.last_backward().backend == "tensorflow"
    np.testing.assert_allclose(x.grad, np.cos([0.0, 2.0, 2.0]), rtol=1e-12)


def test_a_program_that_runs_again_computes_what_was_written():
    recording = linearize([(tg.param(POINTS) + WHOLE) - WHOLE])
    (got,) = forward.forward(recording)([POINTS])
    np.testing.assert_array_equal(got, [0.0, 2.0, 2.0])


def test_what_the_process_has_set_stays(graph_engine):
    import tensorflow as tf

    before = tf.config.optimizer.get_experimental_options()
    tg.sum(tg.param(POINTS) * 2.0).backward()
    assert tf.config.optimizer.get_experimental_options() == before


@np.errstate(all="ignore")
def test_sums_of_products_that_overflow_are_left_to_the_graph(monkeypatch):
    """XLA rounds ``x * y - z`` once: -inf where it is a NaN, for its product does not overflow."""
    ran = []

    class WithXla(StepGraph):
        def __init__(self, recording, variables, inputs):
            super().__init__(recording, variables, inputs, with_xla=True)

        def __call__(self, feeds, changes):
            ran.append(super().__call__(feeds, changes))
            return ran[-1]

    monkeypatch.setattr(step_module, "StepGraph", WithXla)
    large = np.full(2, 1e200)
    with tg.use_backend("tensorflow"):
        step = tg.compile(lambda x, y, z: x * y - z)
        for _ in range(3):
            got = step(large, large, np.full(2, np.inf))
    assert ran == [None]
    assert np.isnan(got).all()

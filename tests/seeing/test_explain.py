"""Engines and steps in words, and the lines of plans where tracebacks look for them."""

import gc
import importlib.util
import linecache
import re
import traceback

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.errors import ORIGINS

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


def test_a_result_is_explained_by_names():
    w, b = tg.param(np.ones((2, 2)), name="w"), tg.param(np.ones(2))
    y = tg.mean(tg.tanh(w @ w + b))
    before = tg.last_backward()
    with tg.use_backend("native"):
        text = tg.explain(y)
    assert "from 2 parameters, 'w', 1 without a name, by 4 operations: matmul, add, tanh" in text
    assert "would run in the native engine. The backend is 'native' (by tg.use_backend)." in text
    assert 'tg.set_backend("auto")' in text or not TENSORFLOW
    assert tg.last_backward() is before and w.grad is None


@pytest.mark.skipif(not TENSORFLOW, reason="needs TensorFlow")
def test_what_an_engine_does_not_run_is_named():
    op = tg.defop(lambda x: 1.0 * x, vjp=lambda g, y, x: g, name="without_lowering")
    with tg.use_backend("tensorflow"):
        text = tg.explain(op(tg.param([1.0])))
        assert "would run in TensorFlow" in tg.explain(tg.exp(tg.param(1.0)))
    assert "would run in the native engine" in text
    assert "TensorFlow does not run it: without_lowering has no lowering." in text


def test_auto_tells_what_was_measured():
    w = tg.param([1.0, 2.0], name="w")
    y = tg.sum(w * w)
    with tg.use_backend("auto"):
        text = tg.explain(y)
    assert "'auto'" in text and ("does not pay yet" in text or "measured" in text or not TENSORFLOW)


def test_what_has_no_gradient_and_what_is_no_result():
    assert "needs no gradient" in tg.explain(tg.tensor(1.0))
    assert "number by number, in Python" in tg.explain(tg.Value(2.0) * 3.0)
    with pytest.raises(TypeError, match=r"explain: received int 3; expected a Tensor, a Value"):
        tg.explain(3)


def test_a_step_is_explained_in_sentences():
    w = tg.param([1.0, 2.0])
    step = tg.compile(lambda x, k: tg.sum(w * x) * k)
    assert "has not been called" in tg.explain(step)
    with tg.use_backend("native"):
        step(np.ones(2), 2)
        assert "Its next call alike is a real one too" in step.explain()
        for _ in range(3):
            step(np.ones(2), 2)
        text = tg.explain(step)
        assert text == step.explain()
    assert "- <lambda>(x: float64[2], k=2): the first call;" in text
    assert "The backend is 'native' (by tg.use_backend)." in text
    assert TENSORFLOW or "TensorFlow does not run it: TensorFlow is not installed." in text


def test_a_loop_in_python_is_told_once():
    w = tg.param([0.5, 0.25])
    optimizer = tg.SGD([w], lr=0.1)

    @tg.compile
    def step(x, rounds):
        for _ in range(rounds):
            x = x * w
        optimizer.zero_grad()
        tg.sum(x).backward()
        optimizer.step()

    line = step.__wrapped__.__code__.co_firstlineno + 3
    said = rf"{__file__}:{line} records mul 301 times.*tg\.fori_loop"
    with tg.use_backend("native"):
        step(np.ones(2), 301)
        with pytest.warns(RuntimeWarning, match=rf"^compile: step: {said}"):
            step(np.ones(2), 301)
        for _ in range(3):  # warnings are errors here
            step(np.ones(2), 301)
            step(np.ones(2), 300)
    assert len(re.findall(said, tg.explain(step))) == 1


@pytest.mark.thorough
def test_many_parameters_are_no_loop():
    weights = [tg.param(np.ones(2)) for _ in range(301)]
    optimizer = tg.Adam(weights)

    @tg.compile
    def step(x):
        optimizer.zero_grad()
        tg.sum(np.stack(weights) * x).backward()
        optimizer.step()

    with tg.use_backend("native"):
        for _ in range(3):
            step(2.0)
    assert " times" not in tg.explain(step)


def test_both_engines_times_are_told():
    pytest.importorskip("tensorflow")
    w = tg.param([1.0, 2.0])
    step = tg.compile(lambda x: tg.sum(w * x))
    with tg.use_backend("auto"):
        for _ in range(8):
            step(np.ones(2))
        text = step.explain()
    assert "The native engine takes" in text and "TensorFlow has not been measured" in text
    assert "trying it costs about" in text


# Plans


def plans():
    return {file for file in linecache.cache if file.startswith("<tapegraph plan")}


def test_a_plans_lines_stand_in_linecache_as_long_as_it_lives():
    gc.collect()
    before = plans()
    w = tg.param([1.0, 2.0])
    step = tg.compile(lambda x: tg.sum(tg.exp(w * x)))
    with tg.use_backend("native"):
        for _ in range(3):
            step(np.ones(2))
    (file,) = plans() - before
    linecache.checkcache()  # which drops what is gone from the disk
    assert "".join(linecache.getlines(file)) == step.source()
    del step
    gc.collect()
    assert plans() == before
    assert not any(name.startswith("<tapegraph plan") for name in ORIGINS)


def test_a_traceback_shows_the_plans_line():
    def refuse(x):
        if x.max() > 5.0:
            raise OSError("no more")
        return x * 1.0

    op = tg.defop(refuse, vjp=lambda g, y, x: g, name="refuse_in_a_plan")
    step = tg.compile(lambda x: tg.sum(op(tg.param([1.0, 2.0]) * x)), verify_every=None)
    with tg.use_backend("native"):
        for _ in range(3):
            step(np.ones(2))
        with pytest.raises(OSError) as caught:
            step(np.array([9.0, 9.0]))
    shown = "".join(traceback.format_exception(caught.value))
    assert "<tapegraph plan" in shown and "= refuse_in_a_plan(" in shown


def test_a_step_that_ran_under_another_backend_says_so():
    step = tg.compile(lambda x: x * 2.0)
    with tg.use_backend("native"):
        for _ in range(3):
            step(np.ones(2))
    with tg.use_backend("auto"):
        text = step.explain()
    assert "ran in native: the backend was native" in text and "The backend is 'auto'" in text

"""The calls of concrete functions: the private one, and the public one in its place."""

from __future__ import annotations

import itertools
import signal
import threading
import time
import types

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.lowering import calls
from tapegraph.lowering.calls import DirectCall
from tests.optional import optional

tf = optional("tensorflow")

pytestmark = pytest.mark.versions


@pytest.fixture(params=["private", "operation", "public"])
def way(request, monkeypatch):
    assert calls.private() is not None  # in the versions that are tested
    monkeypatch.setattr(calls, "OFTEN", 2 if request.param == "operation" else 10**9)
    monkeypatch.setattr(calls, "_kept", itertools.count(1))
    if request.param == "public":
        monkeypatch.setattr(calls, "private", lambda: None)
    return request.param


def concrete(f, *specs, **options):
    signature = [tf.TensorSpec(shape, dtype) for shape, dtype in specs]
    traced = tf.function(f, input_signature=signature, autograph=False, **options)
    return traced.get_concrete_function()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("xla", [False, True])
def test_every_way_gives_a_functions_outputs_and_assigns_its_variables(way, xla):
    v = tf.Variable(np.zeros(2))

    def f(x):
        v.assign_add(x)
        return [x + 1.0, v * 2.0]

    call = DirectCall(concrete(f, ((2,), tf.float64), jit_compile=xla or None), 4, xla=xla)
    x = tf.constant([1.0, 3.0], tf.float64)
    for k in range(1, 6):
        first, second = call([x])
        np.testing.assert_array_equal(first, [2.0, 4.0])
        np.testing.assert_array_equal(second, [2.0 * k, 6.0 * k])
    np.testing.assert_array_equal(v, [5.0, 15.0])


def test_no_way_rounds_otherwise_than_numpy(way):
    large = 1.5 * 2.0**52
    call = DirectCall(concrete(lambda x: [(x + large) - large], ((2,), tf.float64)), 4)
    for _ in range(5):
        (rounded,) = call([tf.constant([0.3, 2.6], tf.float64)])
        np.testing.assert_array_equal(rounded, [0.0, 3.0])


def test_what_fails_is_an_error_of_tensorflows_own(way):
    call = DirectCall(concrete(lambda i: [tf.gather([1.0, 2.0], i)], ((), tf.int64)), 4)
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
            call([tf.constant(7, tf.int64)])
        assert call([tf.constant(1, tf.int64)])[0].numpy() == 2.0


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.one_in(2)
def test_steps_train_alike_by_either_way(way, xla):
    def trained(**options):
        rng = np.random.default_rng(0)
        w = tg.param(rng.normal(size=(3, 2)))
        optimizer = tg.Adam([w], lr=0.1)

        def step(x, labels):
            optimizer.zero_grad()
            loss = tg.softmax_crossentropy(x @ w, labels)
            loss.backward()
            optimizer.step()
            return loss

        step = tg.compile(step, **options) if options else step
        losses = [step(rng.normal(size=(4, 3)), rng.integers(0, 2, 4)).item() for _ in range(8)]
        return losses, w.numpy()

    want, weights = trained()
    with tg.use_backend("tensorflow"):
        got, others = trained(xla=xla, verify_every=None)
        assert tg.last_backward().backend == "tensorflow"
    np.testing.assert_allclose(got, want, rtol=1e-9)
    np.testing.assert_allclose(others, weights, rtol=1e-9)


@pytest.mark.parametrize("change", ["gone", "raises", "gives something else"])
def test_a_private_call_that_is_not_what_it_was_is_not_used(change, monkeypatch):
    from tensorflow.python import pywrap_tfe

    if change == "gone":
        monkeypatch.delattr(pywrap_tfe, "TFE_Py_Execute")
    else:
        error = types.SimpleNamespace(raises=1)

        def other(*given):
            if change == "raises":
                raise TypeError(error)
            return [tf.constant([0.0, 0.0])] * 2

        monkeypatch.setattr(pywrap_tfe, "TFE_Py_Execute", other)
    assert calls.private.__wrapped__() is None


def test_few_functions_and_none_with_branches_keep_their_kernels(monkeypatch):
    monkeypatch.setattr(calls, "OFTEN", 2)
    monkeypatch.setattr(calls, "MOST_KEPT", 1)
    monkeypatch.setattr(calls, "_kept", itertools.count(1))
    branching = concrete(
        lambda x: [tf.cond(x[0] > 0.0, lambda: x + 1.0, lambda: x)], ((2,), tf.float64)
    )
    straight = [concrete(lambda x: [x + 1.0], ((2,), tf.float64)) for _ in range(2)]
    made = [DirectCall(f, 4) for f in (branching, *straight)]
    for call in made * 3:
        np.testing.assert_array_equal(call([tf.constant([1.0, 3.0], tf.float64)])[0], [2.0, 4.0])
    assert [call._by_operation for call in made] == [False, True, False]


# ------------------------------------------------------------------ away from signals


class Stop(Exception):
    pass


def test_what_a_handler_raises_waits_for_what_runs_away_from_it():
    done, arrived = [], threading.Event()

    def slow():
        arrived.set()
        time.sleep(0.2)
        done.append(threading.current_thread())
        return "value"

    def handler(number, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    try:
        sender = threading.Thread(
            target=lambda: (arrived.wait(), signal.raise_signal(signal.SIGALRM))
        )
        sender.start()
        with pytest.raises(Stop):
            calls.away_from_signals(slow)
        assert len(done) == 1 and done[0] is not threading.main_thread()
    finally:
        sender.join()
        signal.signal(signal.SIGALRM, before)
    assert calls.away_from_signals(slow) == "value"


def test_away_from_signals_values_and_errors_come_back_and_other_threads_stay():
    assert calls.away_from_signals(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        calls.away_from_signals(divmod, 7, 0)
    ran = []
    thread = threading.Thread(
        target=lambda: ran.append(calls.away_from_signals(threading.current_thread))
    )
    thread.start(), thread.join()
    assert ran == [thread]

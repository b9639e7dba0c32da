"""An interrupt at any place of a loop leaves state as before, or after, and no scope open."""

from __future__ import annotations

import signal
import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.scopes import recorder
from tests.same_bits import same_bits

W = np.array([[0.5, -0.2], [0.1, 0.3]])
X = np.arange(6.0).reshape(3, 2) / 7


# An exception that a handler raises while a generator is closed does not arrive.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Stop(Exception):
    """What the handler raises."""


class Model:
    """A loop with a branch and draws, and its gradient."""

    def __init__(self):
        self.w = tg.param(W)
        self.optimizer = tg.SGD([self.w], lr=0.1)
        self.step = tg.compile(self.train)

    def loss(self):
        def turn(c, x):
            c = tg.dropout(tg.tanh(c @ self.w + x), 0.2)
            return tg.cond(tg.sum(c) > 0, drawn, lambda c: c + 1.0, c), c

        drawn = lambda c: c + tg.random.normal(size=2)  # noqa: E731

        last, ys = tg.scan(turn, np.zeros(2), X)
        return tg.sum(last * last) + tg.sum(ys)

    def train(self):
        value = self.loss()
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()
        return value

    def gradient(self):
        self.loss().backward()


def raised(number, frame):
    raise Stop


def interrupted(call, place):
    """Make a call in which the handler runs at one place; return whether it came so far."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        if event in ("call", "c_return"):
            count += 1
            if count == place:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raised)
    sys.setprofile(profile)
    try:
        call()
    except Stop:
        return True
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGUSR1, before)
    return False


def places(call, thorough):
    """How many places a call has, and which of them to try."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_return")

    sys.setprofile(profile)
    call()
    sys.setprofile(None)
    return np.unique(np.linspace(1, count, count if thorough else 60).astype(int))


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


def is_sound():
    assert recorder().capture is None and recorder().body is None
    assert recorder().flows
    assert np.geterr()["invalid"] == "warn"


def test_a_gradient_is_added_whole_or_not_at_all(thorough):
    model = Model()
    model.gradient()
    tg.random.seed(3)
    model.w.grad = None
    model.gradient()
    whole = model.w.grad.copy()
    for place in places(model.gradient, thorough):
        tg.random.seed(3)
        model.w.grad = None
        interrupted(model.gradient, place)
        is_sound()
        if model.w.grad is not None:
            same_bits(model.w.grad, whole)
    tg.random.seed(3)
    model.w.grad = None
    model.gradient()
    same_bits(model.w.grad, whole)


def test_a_compiled_step_is_made_whole_or_not_at_all(thorough):
    model = Model()
    for _ in range(6):
        model.step()

    def call():
        model.w.assign(W)
        tg.random.seed(3)
        model.step()

    call()
    whole, after = model.w.data.copy(), tg.random.get_state()
    for place in places(model.step, thorough):
        model.w.assign(W)
        tg.random.seed(3)
        before = tg.random.get_state()
        interrupted(model.step, place)
        is_sound()
        now = tg.random.get_state()
        if np.array_equal(model.w.data, W):
            assert now == before
        else:
            assert now == after
            same_bits(model.w.data, whole)

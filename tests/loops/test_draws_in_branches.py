"""Draws in branches and loops of any length, against Python: the numbers, the stream after them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tapegraph as tg
from tests.loops import in_python
from tests.same_bits import same_bits

W = np.array([1.0, 0.5, 1.5])
ROWS = np.linspace(-1.0, 1.0, 7)


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


def branch(loops, w, at):
    cond = tg.cond if loops is tg else in_python.chosen
    y = cond(
        tg.sum(w) > at,
        lambda w: tg.dropout(w * w, 0.5) + tg.random.normal(size=3),
        lambda w: w * tg.random.uniform(),
        w,
    )
    return y * tg.random.normal(size=3)


def until(loops, w, at):
    grown = lambda c: c * 1.3 * w + tg.random.uniform(size=3)  # noqa: E731
    found = loops.while_loop(lambda c: tg.sum(c) < 10.0 + at, grown, W * 0.1, max_steps=9)
    return found + tg.random.uniform()


def rounds(loops, w, at):
    """A loop of loops and branches that draw, beside rounds that all draw."""
    cond = tg.cond if loops is tg else in_python.chosen

    def turn(c, x):
        c = cond(tg.sum(c) > x, lambda c: tg.tanh(tg.dropout(c, 0.4) * w), shaken, c)
        return c + tg.random.normal(), c

    def shaken(c):
        moved = lambda c, x: (c + tg.random.normal(size=3) * x, tg.random.uniform() * c)  # noqa: E731
        last, ys = loops.scan(moved, c, ROWS[:2])
        return last + tg.sum(ys)

    return loops.scan(turn, np.cos(W) * at, ROWS)[1]


FUNCTIONS = {"branch": branch, "until": until, "rounds": rounds}


def gradient(f, loops, at, seed):
    tg.random.seed(seed)
    w = tg.param(W)
    y = f(loops, w, at)
    tg.sum(y * y).backward()
    return y.data, w.grad, tg.random.uniform()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_gradients_and_stream_are_those_of_python(name):
    for seed in range(5):
        for at in (0.0, 2.0, 10.0):
            pair = (gradient(FUNCTIONS[name], loops, at, seed) for loops in (tg, in_python))
            for found, wanted in zip(*pair, strict=True):
                same_bits(np.asarray(found) + 0.0, np.asarray(wanted) + 0.0)  # -0.0 is 0.0


DERIVATIVES = {
    "jvp": lambda f: tg.jvp(f, (W,), (np.sin(W),))[1],
    "hessian": lambda f: tg.hessian(f)(W),
    "hvp": lambda f: tg.hvp(f, (W,), (np.sin(W),)),
    "jacobian": lambda f: tg.jacobian(lambda w: f(w) * w)(W),
    "checkpoint": lambda f: tg.grad(tg.checkpoint(f))(W),
    "vmap": lambda f: tg.vmap(lambda s: f(s * W), randomness="same")(np.ones(2))[:1],
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("name", ["branch", "until"])
def test_derivatives_are_those_of_python(name, derivative):
    found = []
    for loops in (tg, in_python):
        tg.random.seed(1)
        # With vmap a condition is to be the same for all examples, and no tensor of one.
        f = FUNCTIONS[name]
        if derivative == "vmap":
            f = lambda loops, w, at, f=f: drawn_once(loops, w)  # noqa: E731
        found.append(DERIVATIVES[derivative](lambda w, f=f, s=loops: tg.sum(f(s, w, 0.0) ** 2)))
        found.append(tg.random.uniform())
    np.testing.assert_allclose(found[0], found[2], rtol=1e-12, atol=1e-12)
    assert found[1] == found[3]


def drawn_once(loops, w):
    cond = tg.cond if loops is tg else in_python.chosen
    found = cond(ROWS[-1] > 0.0, lambda: tg.random.normal(size=3), lambda: np.zeros(3))
    return w * found


def trained(calls):
    """What a step that draws everywhere gives and leaves, in calls alone and in a scan."""
    tg.random.seed(3)
    w = tg.param(W)
    optimizer = tg.SGD([w], lr=1e-5)

    @tg.compile
    def step(at):
        before = tg.random.normal(size=3)
        y = branch(tg, w, at) + until(tg, w, at) + tg.sum(rounds(tg, w, at)) + before
        loss = tg.sum(tg.dropout(y, 0.5) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [calls(step, np.array(at)).item() for at in (0.0, 3.0, 0.0, 2.0, 0.0, 3.0)]
    # Of the nine, the fifth to the seventh could run together, were it not for the draws.
    losses += step.scan(np.array([0.0, 3.0, 1.0, 3.0, 0.0, 2.0, 3.0, 0.0, 1.0])).numpy().tolist()
    return step, losses, w.data.copy(), tg.random.get_state()


def test_a_compiled_step_draws_what_the_eager_one_draws():
    with tg.compile_disabled():
        _, *wanted = trained(lambda step, at: step(at))
    step, *found = trained(lambda step, at: step(at))
    assert found[0] == wanted[0]
    same_bits(found[1], wanted[1])
    assert found[2] == wanted[2]
    assert step.traces <= 2  # for calls and for the scan, whichever branch runs


def test_a_failed_run_leaves_the_stream():
    @tg.compile
    def step(at, i):
        return branch(tg, tg.tensor(W), at) + tg.gather(W, i)

    for at in (0.0, 9.0, 0.0):
        step(np.array(at), np.array([1]))
    before = tg.random.get_state()
    with pytest.raises(IndexError):
        step(np.array(0.0), np.array([7]))
    assert tg.random.get_state() == before


def test_threads_draw_no_number_twice():
    found = []

    def draw():
        for _ in range(40):
            many = tg.while_loop(
                lambda c: c[0] < 5,
                lambda c: (c[0] + 1, c[1] * 0.0 + tg.random.uniform(size=2)),
                (0, np.zeros(2)),
            )
            found.extend(many[1].data.tolist())
            found.extend(tg.random.uniform(size=2).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 4 * 40 * 4


def test_what_it_refuses():
    w = np.stack([W, -W])
    noisy = lambda w: tg.cond(tg.sum(w) > 0, lambda w: w + tg.random.normal(), lambda w: w, w)  # noqa: E731
    with pytest.raises(RuntimeError, match="how to draw"):
        tg.vmap(noisy)(w)
    before = tg.random.get_state()
    for randomness in ("same", "different"):
        with pytest.raises(RuntimeError, match="more often than others"):
            tg.vmap(noisy, randomness=randomness)(w)
    grown = lambda c: c * 2.0 + tg.random.uniform()  # noqa: E731
    go_on = lambda c: tg.while_loop(lambda c: tg.sum(c) < 9.0, grown, c)  # noqa: E731
    with pytest.raises(RuntimeError, match="more often than others"):
        tg.vmap(go_on, randomness="same")(np.abs(w))
    with pytest.raises(RuntimeError, match="Draw in the body"):
        tg.while_loop(lambda c: c < tg.random.uniform(), lambda c: c + 1.0, 0.0)
    with pytest.raises(RuntimeError, match="Draw them before"):
        tg.integrate.odeint(lambda y, t: noisy(y), W, np.array([0.0, 1.0]))
    assert tg.random.get_state() == before

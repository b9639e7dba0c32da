"""Each kind of loop and branch under what surrounds it, against Python."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.autograd import grad as drop_in_grad
from tests.loops import in_python
from tests.same_bits import same_bits

W = np.array([0.5, 0.9, 1.2])
Z = W * (1.0 + 0.5j)


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


def scanned(loops, w):
    last, ys = loops.scan(lambda c, x: ({"h": tg.tanh(c["h"] * w) + x}, c["h"]), {"h": w}, W)
    return last["h"] + tg.sum(ys)


def looped(loops, w):
    body = lambda c: {"h": c["h"] * w * 1.5, "n": c["n"] + 1}  # noqa: E731
    return loops.while_loop(lambda c: c["n"] < 4, body, {"h": w + 0.1, "n": 0})["h"]


def chosen(loops, w):
    f = lambda w: {"a": tg.sin(w), "b": (w * w,)}  # noqa: E731
    g = lambda w: {"a": w * 2.0, "b": (tg.exp(w),)}  # noqa: E731
    found = (tg.cond if loops is tg else in_python.chosen)(tg.sum(tg.abs(w)) > 1.0, f, g, w)
    return found["a"] * found["b"][0]


def switched(loops, w):
    branches = [lambda w: w, lambda w: tg.sin(w) * w, lambda w: w * w]
    return (tg.switch(1, branches, w) if loops is tg else branches[1](w)) * w


FUNCTIONS = {"scan": scanned, "while_loop": looped, "cond": chosen, "switch": switched}


def loss(f, loops):
    return lambda w: tg.sum(tg.abs(f(loops, w)) ** 2)


AROUND = {
    "checkpoint": lambda f: tg.grad(tg.checkpoint(f))(W),
    "complex": lambda f: tg.grad(f)(Z),
    "drop-in": lambda f: drop_in_grad(f)(W),
    "drop-in of drop-in": lambda f: drop_in_grad(lambda w: tg.sum(drop_in_grad(f)(w) * W))(W),
    "no_grad": lambda f: tg.no_grad()(f)(W).item(),
    "value_and_grad": lambda f: tg.value_and_grad(f)(W)[1],
    "vjp": lambda f: tg.vjp(f, W)[1](2.0)[0],
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_surrounds_it_gives_what_python_gives(name, around):
    found, wanted = (AROUND[around](loss(FUNCTIONS[name], s)) for s in (tg, in_python))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_runs_of_a_step(name):
    def trained(loops):
        w = tg.param(W)
        optimizer = tg.SGD([w], lr=1e-4)

        @tg.compile
        def step(x):
            value = tg.sum(FUNCTIONS[name](loops, w * x) ** 2)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            return value

        rows = np.linspace(0.9, 1.1, 6)
        if loops is tg:
            return step.scan(rows).numpy(), w.data
        with tg.compile_disabled():
            return np.array([step(x).item() for x in rows]), w.data

    for found, wanted in zip(trained(tg), trained(in_python), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_values_are_refused_by_name():
    value = tg.Value(2.0)
    with pytest.raises(TypeError, match=r"while_loop.*Value"):
        tg.while_loop(lambda c: c < 9.0, lambda c: c * value, 1.0)
    with pytest.raises(TypeError, match=r"cond.*Value"):
        tg.cond(True, lambda x: x * value, lambda x: x, 1.0)
    with pytest.raises(TypeError, match=r"switch.*Value"):
        tg.switch(0, [lambda x: value, lambda x: x], 1.0)
    with pytest.raises(TypeError, match=r"scan.*Value"):
        tg.scan(lambda c, x: (c * value, None), 1.0, W)


def test_an_index_and_a_bound_of_a_step_are_arguments():
    step = tg.compile(lambda i, w: tg.switch(i, [tg.sin, tg.cos, tg.exp], w))
    for i in (0, 1, 2, 0, 2):
        same_bits(step(np.array(i), W).data, (np.sin, np.cos, np.exp)[i](W))
    assert step.traces == 1

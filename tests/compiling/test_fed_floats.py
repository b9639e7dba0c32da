"""Floats that every call gives anew: what Python computes from them, and where they stand."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tapegraph as tg

X = np.array([1.0, -2.0, 0.5])


@pytest.fixture(params=["native", "tensorflow"])
def engine(request):
    """Compile the test's steps for each engine that is installed."""
    if request.param == "tensorflow":
        pytest.importorskip("tensorflow")
    with tg.use_backend(request.param):
        yield request.param


class Held:
    """An object whose attribute a step reads."""

    def __init__(self, k):
        self.k = k


def calls_of(work):
    """Return how many calls of Python functions some work makes."""
    count = 0

    def hear(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


# ------------------------------------------------------------------ Python's arithmetic


def logistic(rounds):
    """Return a step that iterates a map: each number is read twice by the next."""

    def step(x, c):
        z = c
        for _ in range(rounds):
            z = z * z + c
        return x * z

    return step


def test_a_number_that_is_read_twice_is_computed_once():
    counts = []
    for rounds in (1, 12):
        with tg.use_backend("native"):
            step = tg.compile(logistic(rounds), verify_every=None)
            for _ in range(3):
                step(X, 0.1)
            counts.append(calls_of(lambda step=step: step(X, 0.1)))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("rounds", [30, 2500])
def test_arithmetic_of_a_float_as_long_as_one_likes(rounds, engine):
    step, eager = tg.compile(logistic(rounds)), logistic(rounds)
    for c in (0.1, -0.7, 0.2, -1.0, 0.25):
        np.testing.assert_array_equal(step(X, c).data, eager(X, c))
    assert step.traces == 1


@pytest.mark.parametrize("fed", ["argument", "attribute"])
def test_a_discounted_return_of_many_rounds(fed):
    held, w = Held(0.99), tg.param(X)

    def discounted(rewards, gamma):
        total, d = 0.0, 1.0
        for t in range(700):
            if t % 100 == 0:
                total = total + d * rewards
            d *= gamma
        return total

    with tg.use_backend("native"):
        if fed == "argument":
            step = tg.compile(lambda x, gamma: discounted(w * x, gamma))
        else:
            step = tg.compile(lambda x, _: discounted(w * x, held.k))
        for i in range(10):
            held.k = 0.99 + 0.001 * i
            want = X * sum(held.k ** (100 * t) for t in range(7)) * X
            np.testing.assert_allclose(step(X, held.k).data, want, rtol=1e-10)


def test_constants_are_told_apart_by_type_and_sign():
    def step(x, k):
        return x * (k * 1), x * (k * 1.0), x * (k * True), x * (k + 0.0), x * (k + -0.0)

    compiled = tg.compile(step)
    with tg.use_backend("native"):
        for k in (2.0, -0.0, 1e-320, float("inf"), -3.0):
            with np.errstate(all="ignore"):
                want = step(X, k)
            for got, expected in zip(compiled(X, k), want, strict=True):
                assert got.data.tobytes() == expected.tobytes()


def test_arithmetic_that_nothing_reads_may_differ():
    factors = iter((3.0, 2.0, 1.0))

    def step(x, k):
        k * next(factors)
        return x * k

    compiled = tg.compile(step, verify_every=None)
    for k in (0.5, 2.0, 4.0):
        np.testing.assert_array_equal(compiled(X, k).data, X * k)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (lambda k, c, turn: k * (3.0 if turn else 2.0), r"the number 3\.0, and then 2\.0"),
        (lambda k, c, turn: (k if turn else c) * 2.0, "the number .*argument 1.*argument 2"),
        (lambda k, c, turn: k + c if turn else k - c, r"add\(.*sub\("),
    ],
)
def test_a_mismatch_says_which_number_differs(chosen, words):
    turns = iter((True, False))
    step = tg.compile(lambda x, k, c: x * chosen(k, c, next(turns)))
    step(X, 0.5, 0.25)
    with pytest.raises(tg.TraceMismatchError, match=words):
        step(X, 0.5, 0.25)

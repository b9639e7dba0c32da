"""Operations whose lengths follow the batch give the eager numbers and gradients for any size."""

from __future__ import annotations

import re

import numpy as np
import pytest
from free_programs import PROGRAMS, RNG, W
from optional import optional

import tapegraph as tg
from tests.quick import thinned

tf = optional("tensorflow")

SIZES = (1, 2, 9)  # of none of which a function is recorded


def test_the_first_rows_of_a_batch_that_has_fewer_are_an_error():
    made = tg.function(lambda x: tg.mean((x @ W)[:3], axis=0))
    concrete = made.get_concrete_function(tf.TensorSpec((None, 4), tf.float64))
    x = RNG.normal(size=(5, 4))
    np.testing.assert_allclose(concrete(tf.constant(x)), (x @ W.detach().numpy())[:3].mean(axis=0))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2,3\]"):
        concrete(tf.constant(x[:2]))


def test_all_but_the_last_rows_of_a_batch_that_has_fewer_are_none():
    made = tg.function(lambda x: x[:-3] @ W)
    concrete = made.get_concrete_function(tf.TensorSpec((None, 4), tf.float64))
    for n in (1, 2, 3, 5):
        assert concrete(tf.zeros((n, 4), tf.float64)).shape == (max(n - 3, 0), 3)


@pytest.mark.parametrize(
    "first",
    [
        lambda xs: np.zeros((xs.shape[1], 3)),
        lambda xs: np.zeros_like(xs[0] @ W),
        lambda xs: np.broadcast_to(np.array([0.5, -0.0, np.inf]), (xs.shape[1], 3)),
    ],
)
def test_a_loop_may_begin_with_equal_rows(first):
    def last(x):
        xs = np.stack([x, 2.0 * x])
        carry, _ = tg.scan(lambda h, x: (np.tanh(x @ W + h), None), first(xs), xs)
        return carry

    f = tg.function(last).get_concrete_function(tf.TensorSpec((None, 4), tf.float64))
    for n in SIZES:
        x = np.random.default_rng(n).normal(size=(n, 4))
        np.testing.assert_allclose(f(tf.constant(x)), last(x).data, rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x * (np.ones((len(x), 4)) / len(x)), (4, 4)),
        (
            lambda x: np.where(np.arange(len(x)) < 9, x.T, 0.0).T,
            (4,),
        ),
    ],
)
def test_rows_that_may_be_others_for_another_batch_are_refused(f, shape, tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"of shape {shape} with other numbers")):
        tg.export(lambda x: f(x) @ W, tmp_path, np.ones((8, 4)))


@pytest.mark.parametrize("name", thinned(PROGRAMS, 4))
@pytest.mark.one_in(4)
def test_a_program_of_any_batch_gives_the_eager_numbers(name):
    f = PROGRAMS[name]
    function = tg.function(f)
    made = function.get_concrete_function(
        tf.TensorSpec((None, 4), tf.float64), tf.TensorSpec((None,), tf.int64)
    )
    variable = function.parameters["W"]
    for n in SIZES:
        x, y = tg.param(RNG.normal(size=(n, 4))), RNG.integers(0, 3, n)
        wanted = f(x, y)
        slopes = tg.gradients(tg.sum(wanted * wanted), [x, W], allow_unused=True)
        feed = tf.constant(x.detach().numpy())
        with tf.GradientTape() as tape:
            tape.watch(feed)
            found = made(feed, tf.constant(y))
            total = tf.reduce_sum(found * found)
        np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
        for got, slope in zip(tape.gradient(total, [feed, variable]), slopes, strict=True):
            assert (got is None) == (slope is None)
            if slope is not None:
                got = tf.convert_to_tensor(got)
                np.testing.assert_allclose(got, slope.numpy(), rtol=1e-9, atol=1e-12)

"""Chains of a plan made block by block: the numbers are the same to the bit, in less memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from programs import programs

import tapegraph as tg
from tapegraph.engines.tuner import CLOCK
from tapegraph.fallback.plan import blocks
from tests.compiling.attention import attention
from tests.compiling.beside import beside
from tests.compiling.test_random_steps import beside_eager


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


@pytest.fixture
def always(monkeypatch):
    """Take the shortest blocks, whatever is faster."""
    monkeypatch.setattr(blocks, "fastest", lambda trials: trials[min(1, len(trials) - 1)])


@pytest.fixture
def tiny(always, monkeypatch):
    """Cut arrays of any size, by single rows."""
    monkeypatch.setattr(blocks, "SMALLEST", 2)
    monkeypatch.setattr(blocks, "FEWEST", 1)
    monkeypatch.setattr(blocks, "SIZES", (1,))
    monkeypatch.setattr(blocks, "LANES", 1)


def blocks_of(step):
    """Return what a step calls block by block: the text of each function."""
    return re.findall(r"^def block.*?\n\n", step.source(), re.DOTALL | re.MULTILINE)


def plan_of(step):
    (entry,) = step._entries
    return entry.programs.native


# ------------------------------------------------------------------ the same numbers


def test_random_programs_by_single_rows(tiny, thorough):
    cut = 0

    @settings(
        max_examples=400 if thorough else 60,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def one(program):
        nonlocal cut
        step = beside_eager(program, "native")
        cut += step is not None and bool(blocks_of(step))

    one()
    assert cut > 30


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", [tg.Adam, tg.Lion, tg.RMSprop], ids=lambda rule: rule.__name__)
def test_a_training_step_by_blocks(always, monkeypatch, dtype, rule):
    monkeypatch.setattr(blocks, "SMALLEST", 1 << 14)
    monkeypatch.setattr(blocks, "SIZES", (1 << 13,))
    make, calls = attention(dtype, lambda params: rule(params, lr=1e-3))
    step = beside(make, calls, "native")
    found = blocks_of(step)
    for calls_of_one in (
        ["exp(", "maximum.reduce(", "add.reduce(", "bitwise_or("],  # softmax, and its mask
        ["vecdot(", "sqrt("],  # layer normalisation
        ["tanh("],  # gelu
        ["sign(" if rule is tg.Lion else "sqrt(", "subtract("],  # the optimizer
    ):
        assert any(all(call in text for call in calls_of_one) for text in found), calls_of_one
    assert f"{len(found)} chains in blocks" in step.explain()


@pytest.mark.parametrize("length", [1, 3, 127, 4099, 65536])
def test_arrays_of_any_length(always, monkeypatch, length):
    monkeypatch.setattr(blocks, "SMALLEST", 1 << 14)

    def make():
        w = tg.param(np.linspace(0.5, 1.0, 8))

        def step(x):
            w.grad = None
            y = tg.gelu(x * w) * tg.tanh(x) + tg.exp(-x)
            tg.sum(y).backward()
            return y

        return step, [w]

    rng = np.random.default_rng(0)
    beside(make, [(rng.normal(size=(length, 8)),) for _ in range(5)], "native")


def test_what_is_given_in_any_order_of_memory(tiny):
    def make():
        w = tg.param(np.linspace(0.5, 1.0, 6))

        def step(x):
            w.grad = None
            y = tg.softmax(tg.tanh(x * w) + x, axis=-1)
            tg.sum(y * x).backward()
            return y

        return step, [w]

    x = np.random.default_rng(0).normal(size=(8, 6))
    forms = [x, np.asfortranarray(x), x[::-1], np.repeat(x, 2, axis=1)[:, ::2], x * 2.0]
    for turn in range(len(forms)):
        calls = [(form,) for form in forms[turn:] + forms[:turn]]
        beside(make, calls, "native")


def test_what_others_read_of_a_chain(tiny):
    def f(x, v, mask):
        y = tg.exp(x)
        rows = np.broadcast_to(tg.sum(y, axis=-1, keepdims=True), y.shape)
        chosen = tg.where(mask, tg.tanh(y / rows), 0.5)  # through its bits, seen as integers
        return chosen @ v, tg.sum(rows, axis=0), chosen * 2.0

    rng = np.random.default_rng(0)
    step = tg.compile(f)
    for _ in range(5):
        x, v = rng.normal(size=(128, 160)), rng.normal(size=(160, 3))
        mask = rng.random(x.shape) < 0.5
        for got, want in zip(step(x, v, mask), f(x, v, mask), strict=True):
            np.testing.assert_array_equal(got.data, want.data)
    assert any("bitwise_or(" in text and "tanh(" in text for text in blocks_of(step))


def test_a_view_of_a_view_that_others_read(tiny):
    def f(x, mask, masks):  # through their bits, seen as integers
        return tg.where(masks, tg.where(mask, tg.tanh(x), 0.5), 0.0)

    rng = np.random.default_rng(0)
    step = tg.compile(f)
    for _ in range(5):
        x = rng.normal(size=(128, 160))
        given = x, rng.random(x.shape) < 0.5, rng.random((2, *x.shape)) < 0.5
        np.testing.assert_array_equal(step(*given).data, f(*given).data)
    assert any("bitwise_or(" in text and "tanh(" in text for text in blocks_of(step))


# ------------------------------------------------------------------ memory


def chain(x, w):
    for _ in range(6):
        x = tg.tanh(x * w + 1.0) * w
    return x


def test_what_only_the_chain_reads_is_no_longer_than_a_block(always):
    w = tg.param(np.full(512, 0.5))
    step = tg.compile(lambda x: chain(x, w))
    x = np.ones((512, 512))
    for _ in range(4):
        np.testing.assert_array_equal(step(x).data, chain(x, w).data)
    assert len(blocks_of(step)) == 1
    assert plan_of(step).nbytes <= max(blocks.SIZES)  # the result is the caller's own


def test_results_are_nobody_elses(always):
    w = tg.param(np.full(512, 0.5))
    step = tg.compile(lambda x: chain(x, w))
    kept = [step(np.full((512, 512), float(i))) for i in range(5)]
    for i, y in enumerate(kept):
        np.testing.assert_array_equal(y.data, chain(np.full((512, 512), float(i)), w).data)


# ------------------------------------------------------------------ when


class Timed:
    """Takes so many seconds of a clock that stands still otherwise."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def run(self):
        self.clock[0] += self.seconds


@pytest.mark.parametrize(
    ("seconds", "best"),
    [([1.0, 0.99], 0), ([1.0, 0.9], 1), ([1.0, 0.9, 0.7], 2), ([1.0, 2.0, 0.98], 0), ([3.0], 0)],
)
def test_blocks_are_taken_where_they_are_clearly_faster(monkeypatch, seconds, best):
    clock = [0.0]
    monkeypatch.setattr(CLOCK, "now", lambda: clock[0])
    trials = [Timed(clock, s) for s in seconds]
    assert blocks.fastest(trials) is trials[best]


def test_blocks_that_give_other_bits_are_not_taken(always, monkeypatch):
    monkeypatch.setattr(blocks.Trial, "run", lambda self: None)
    w = tg.param(np.full(512, 0.5))
    step = tg.compile(lambda x: chain(x, w))
    for _ in range(3):
        step(np.ones((512, 512)))
    assert not blocks_of(step)


def test_small_arrays_are_not_measured(monkeypatch):
    monkeypatch.setattr(blocks, "fastest", lambda trials: pytest.fail("measured"))
    w = tg.param(np.full(64, 0.5))
    step = tg.compile(lambda x: chain(x, w))
    for _ in range(3):
        step(np.ones((64, 64)))
    assert not blocks_of(step)

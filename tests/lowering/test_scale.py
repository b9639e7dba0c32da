"""Long chains through the graph engine: compiling must not grow faster than the program."""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import pytest

import tapegraph as tg

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"),
]


def chain(x: tg.Tensor, length: int) -> tg.Tensor:
    y = x
    for n in range(length):
        y = tg.sin(y) if n % 2 else y * 1.0001
    return y


def first_backward(graph_engine, length: int) -> float:
    """Return the processor's seconds that a new chain takes, and check its numbers."""
    graph_engine.cache_clear()
    x = tg.param(np.linspace(-1.0, 1.0, 8))
    y = chain(x, length)
    start = time.process_time()
    y.backward()
    seconds = time.process_time() - start
    report = tg.last_backward()
    entries = 1 + length + length // 2
    assert (report.backend, report.cached, report.entries) == ("tensorflow", False, entries)
    graph, x.grad = x.grad, None
    with tg.use_backend("native"):
        y.backward()
    np.testing.assert_allclose(graph, x.grad, rtol=1e-9, atol=1e-12)
    return seconds


@pytest.mark.thorough
def test_compiling_grows_no_faster_than_the_program(graph_engine):
    first_backward(graph_engine, 10)  # TensorFlow is imported
    ratios = []
    while len(ratios) < 3 and min(ratios, default=np.inf) >= 15.0:  # what neighbours take adds
        short, long = (first_backward(graph_engine, length) for length in (250, 1500))
        ratios.append(long / short)
    assert min(ratios) < 15.0  # 6 times as long; growing with the square it would be 36


def test_the_second_backward_of_a_long_chain_compiles_nothing(graph_engine):
    for cached in (False, True):
        chain(tg.param(np.ones(8)), 300).backward()
        report = tg.last_backward()
        assert (report.cached, report.compile_seconds > 0.0) == (cached, not cached)
    assert graph_engine.cache_info().compiles == 1

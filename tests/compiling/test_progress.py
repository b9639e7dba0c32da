"""A line tells of compiling that takes long, on a terminal, and in the log where there is one."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import display
from tapegraph.environment import PROGRESS


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stderr(monkeypatch):
    def put(stream):
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    monkeypatch.delenv(PROGRESS, raising=False)
    monkeypatch.setattr(display, "PATIENCE", 0.05)
    return put


def wait_for(stream, text: str) -> None:
    until = time.monotonic() + 10.0
    while text not in stream.getvalue():
        assert time.monotonic() < until, stream.getvalue()
        time.sleep(0.01)


def test_a_line_is_begun_after_a_while_and_ended_with_the_seconds(stderr, caplog):
    terminal = stderr(Terminal())
    with caplog.at_level(logging.INFO, "tapegraph"), display.announce("compiling f"):
        assert terminal.getvalue() == ""
        wait_for(terminal, "tapegraph: compiling f ... ")
    line = terminal.getvalue()
    assert line.startswith("tapegraph: compiling f ... 0.") and line.endswith(" s\n")
    assert [r.getMessage()[:15] for r in caplog.records] == ["compiling f: 0."]


def test_what_is_quick_leaves_no_line(stderr, monkeypatch, caplog):
    monkeypatch.setattr(display, "PATIENCE", 60.0)
    terminal = stderr(Terminal())
    with caplog.at_level(logging.INFO, "tapegraph"), display.announce("compiling f"):
        pass
    assert terminal.getvalue() == "" and not caplog.records


def test_an_error_ends_the_line_too(stderr):
    terminal = stderr(Terminal())
    with pytest.raises(KeyboardInterrupt), display.announce("compiling f"):
        wait_for(terminal, "compiling f")
        raise KeyboardInterrupt
    assert " ... stopped after 0." in terminal.getvalue()


@pytest.mark.parametrize(
    ("wish", "make", "shown"),
    [("", io.StringIO, False), ("1", io.StringIO, True), ("0", Terminal, False)],
)
def test_where_it_is_shown(stderr, monkeypatch, wish, make, shown):
    monkeypatch.setenv(PROGRESS, wish)
    stream = stderr(make())
    with display.announce("compiling f"):
        time.sleep(0.3)
    assert bool(stream.getvalue()) is shown


def test_a_closed_stderr_is_no_failure(stderr):
    terminal = stderr(Terminal())
    terminal.close()
    with display.announce("compiling f"):
        time.sleep(0.2)


def test_a_step_says_what_it_compiles(stderr, monkeypatch):
    from tapegraph.fallback import ENGINE

    terminal = stderr(Terminal())
    make = ENGINE.whole

    def slow(recording, state):
        wait_for(terminal, " ... ")
        return make(recording, state)

    monkeypatch.setattr(ENGINE, "whole", slow)
    with tg.use_backend("native"):
        step = tg.compile(lambda x: tg.sum(x * 2.0))
        step.__name__ = "doubled"
        for _ in range(3):
            step(np.ones(2))
    line = "tapegraph: compiling doubled in the native engine: 4 entries ... "
    assert terminal.getvalue().startswith(line) and terminal.getvalue().count("\n") == 1


def test_a_step_says_that_tensorflow_compiles_it_and_then_xla(stderr, monkeypatch):
    pytest.importorskip("tensorflow")
    from tapegraph.engines import choice
    from tapegraph.lowering.steps import xla
    from tapegraph.lowering.steps.step_graph import StepGraph

    terminal = stderr(Terminal())
    call, ran = StepGraph.__call__, set()

    def slow(graph, feeds, changes):
        if graph not in ran:
            ran.add(graph)
            wait_for(terminal, "with XLA" if graph.with_xla else "in TensorFlow")
        return call(graph, feeds, changes)

    monkeypatch.setattr(StepGraph, "__call__", slow)
    monkeypatch.setattr(xla, "LIMIT", xla.LIMIT + 1000)  # of one process, where others test too
    monkeypatch.setattr(choice, "EARLIEST", 0.0)
    monkeypatch.setattr(xla, "STEP", 0.0)
    monkeypatch.setattr(xla, "STEP_ENTRY", 0.0)
    with tg.use_backend("tensorflow"):
        step = tg.compile(lambda x: tg.sum(x * 2.0))
        step.__name__ = "doubled"
        until = time.monotonic() + 30.0
        while "with XLA" not in terminal.getvalue():  # until runs have paid for tracing the graph
            step(np.ones(2))
            assert time.monotonic() < until, step.explain()
    first, second = terminal.getvalue().splitlines()
    assert "compiling doubled in TensorFlow: 4 entries ... " in first
    assert "compiling a step with XLA: 4 entries ... " in second


def test_a_real_terminal_shows_it():
    pty = pytest.importorskip("pty")
    code = "import time; from tapegraph import display; display.PATIENCE = 0.1\n"
    code += "with display.announce('compiling f'): time.sleep(0.5)"
    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != PROGRESS}
    subprocess.run([sys.executable, "-c", code], stderr=theirs, env=env, check=True)
    os.close(theirs)
    assert os.read(ours, 1000).startswith(b"tapegraph: compiling f ... 0.")


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_a_long_scan_shows_how_far_it_is(has_tqdm, stderr, monkeypatch):
    if has_tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    terminal = stderr(Terminal())
    total = tg.tensor(0.0)
    slow = tg.defop(lambda x: (time.sleep(0.02), x)[1], vjp=lambda g, y, x: g, name="progress_slow")
    step = tg.compile(lambda x: total.assign(total + slow(x)))
    step.scan(np.ones(12))
    shown = terminal.getvalue()
    assert "tapegraph: scan of <lambda>" in shown and total.item() == 12.0
    assert ("12/12" in shown) if has_tqdm else shown.endswith("12 done\n")
    quiet = stderr(io.StringIO())  # no terminal
    step.scan(np.ones(12))
    assert quiet.getvalue() == ""

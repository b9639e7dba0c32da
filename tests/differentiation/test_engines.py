"""Choosing the engine, and the report of what it did."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg

CHOICES = ("auto", "tensorflow", "native")


@pytest.mark.parametrize("name", CHOICES)
def test_set_backend_is_what_get_backend_says(name):
    tg.set_backend(name)
    assert tg.get_backend() == name


@pytest.mark.parametrize("name", CHOICES)
def test_use_backend_holds_inside_its_block(name):
    before = tg.get_backend()
    with tg.use_backend(name):
        assert tg.get_backend() == name
    assert tg.get_backend() == before


def test_use_backend_nests_and_survives_errors():
    tg.set_backend("auto")
    with pytest.raises(KeyError), tg.use_backend("native"):
        with tg.use_backend("tensorflow"):
            assert tg.get_backend() == "tensorflow"
        assert tg.get_backend() == "native"
        raise KeyError
    assert tg.get_backend() == "auto"


def test_the_innermost_choice_wins_over_set_backend():
    with tg.use_backend("native"):
        tg.set_backend("tensorflow")
        assert tg.get_backend() == "native"
    assert tg.get_backend() == "tensorflow"


@pytest.mark.parametrize("choose", [tg.set_backend, lambda name: tg.use_backend(name).__enter__()])
@pytest.mark.parametrize("name", ["torch", "", "Native", None, 1])
def test_an_unknown_backend_lists_the_choices(choose, name):
    tg.set_backend("native")
    with pytest.raises(ValueError, match="'auto', 'tensorflow', 'native'") as caught:
        choose(name)
    assert repr(name) in str(caught.value)
    assert tg.get_backend() == "native"


# -- the environment ---------------------------------------------------------------------------


def imported(variable):
    """Import tapegraph in a fresh interpreter under ``TAPEGRAPH_BACKEND=variable``."""
    environment = {k: v for k, v in os.environ.items() if k != "TAPEGRAPH_BACKEND"}
    if variable is not None:
        environment["TAPEGRAPH_BACKEND"] = variable
    return subprocess.run(
        [sys.executable, "-c", "import tapegraph; print(tapegraph.get_backend())"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )


@pytest.mark.parametrize(
    ("variable", "backend"), [(None, "auto"), ("", "auto"), ("native", "native")]
)
def test_the_environment_chooses_at_import(variable, backend):
    assert imported(variable).stdout.strip() == backend


def test_an_unknown_environment_value_fails_the_import():
    result = imported("cuda")
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: TAPEGRAPH_BACKEND: received 'cuda'")
    assert all(repr(choice) in last for choice in CHOICES)


# -- the report --------------------------------------------------------------------------------


def test_no_report_before_the_first_backward():
    assert tg.last_backward() is None


def test_the_report_of_a_native_backward():
    x = tg.param([1.0, 2.0])
    with tg.use_backend("native"):
        tg.sum(x * 2.0).backward()
    report = tg.last_backward()
    assert (report.backend, report.entries, report.cached) == ("native", 4, False)
    assert "native" in report.reason
    assert report.compile_seconds == 0.0
    assert 0.0 < report.run_seconds < 10.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.backend = "tensorflow"


def test_each_backward_has_a_report_of_its_own():
    x = tg.param(1.0)
    tg.set_backend("native")
    (x * 2.0).backward()
    first = tg.last_backward()
    (x * 2.0 * 3.0).backward()
    assert (first.entries, tg.last_backward().entries) == (3, 5)


def test_entries_count_what_was_differentiated_not_the_tape():
    x = tg.param(1.0)
    kept = [tg.sin(x) for _ in range(10)]
    tg.set_backend("native")
    kept[0].backward()
    assert tg.last_backward().entries == 2
    assert len(tg.tape()) == 11


def test_a_failed_backward_leaves_the_report():
    x = tg.param([1.0, 2.0])
    tg.set_backend("native")
    x.sum().backward()
    report = tg.last_backward()
    with pytest.raises(ValueError, match="seed"):
        x.sum().backward([1.0, 2.0])
    assert tg.last_backward() is report


def test_both_ways_to_call_backward_are_one():
    x = tg.param([1.0, 2.0])
    tg.backward(x * x, seed=[1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [2.0, 8.0])
    x.grad = None
    (x * x).backward(seed=[1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [2.0, 8.0])

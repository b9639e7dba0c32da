"""The benchmark's protocol: contenders must agree, take turns, and are compared round by round."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import auto, contest, environment, peers, protocol, report
from benchmarks.protocol import Contender, Problem, Spread, Trainer, check_agreement, time_in_turns
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]


def run(*arguments: object, cwd: Path, status: int = 0) -> str:
    """Run ``python -m ...`` and return all it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


# The command


def test_help_names_every_option_workload_and_peer(tmp_path):
    out = run("benchmarks", "--help", cwd=tmp_path)
    for (
        option
    ) in "workload peer engine rounds threads openblas-timeout quick auto json png".split():
        assert f"--{option} " in out or f"--{option}\n" in out
    for name in (*WORKLOADS, *peers.PEERS):
        assert name in out
    assert "OPENBLAS_THREAD_TIMEOUT=14" in out


def test_quick_run_with_whatever_is_installed(tmp_path):
    written = tmp_path / "figures.json"
    out = run("benchmarks", "--quick", "--workload", "tiny", "--json", written, cwd=tmp_path)
    figures = json.loads(written.read_text())
    tiny = figures["workloads"]["tiny"]
    assert tiny["seconds"]["tapegraph native"]["median"] > 0
    for name, peer in peers.PEERS.items():
        installed = peer.module in figures["versions"]
        if installed and name != "micrograd":
            ratio = tiny["ratios"]["tapegraph native"][name]
            low, high = ratio["quartiles"]
            assert 0 < low <= ratio["median"] <= high
        elif not installed and name != "micrograd":
            assert f'{name} left out: {peer.module} is not installed: pip install "tap' in out


def test_first_steps_of_a_fresh_process(tmp_path):
    out = run("benchmarks.first_steps", "tiny", "native", 3, cwd=tmp_path)
    start = json.loads(out)
    assert 0 < start["first"] < start["total"]
    assert start["ran"] == "native"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workload", "nonsense"), "invalid choice: 'nonsense'"),
        (("--rounds", "1"), "at least 2"),
        (("--auto", "--png", "x.png"), "--auto draws no --png"),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments, message, tmp_path):
    out = run("benchmarks", *arguments, cwd=tmp_path, status=2)
    assert message in out
    assert "Traceback" not in out


def test_threads_cannot_be_fixed_once_numpy_is_there():
    with pytest.raises(RuntimeError, match="before NumPy is imported"):
        environment.settle(1)


# The protocol, on contenders that do no work


class Clock:
    """A clock that only steps move: nothing here depends on how busy the machine is."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.asleep = 0.0
        names = ("perf_counter", "process_time", "sleep")
        fake = SimpleNamespace(**{name: getattr(self, name) for name in names})
        monkeypatch.setattr(protocol, "time", fake)

    def perf_counter(self):
        return self.now

    process_time = perf_counter

    def sleep(self, seconds):
        self.asleep += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def contender(name, clock, seconds, log=None):
    """Return one whose steps take the given seconds, over and over."""
    steps = 0

    def step():
        nonlocal steps
        clock.now += seconds[steps % len(seconds)]
        steps += 1
        if log is not None:
            log.append(name)
        return 0.0

    return Contender(name, lambda: Trainer(step, lambda: []))


def test_contenders_take_turns_and_warmups_are_left_out(clock):
    log = []
    both = [contender(name, clock, [1.0], log) for name in "AB"]
    turns = time_in_turns(both, rounds=2, warmups=1)
    # The first turn has a step in advance; after it, steps are known to be long.
    assert "".join(log) == "AABB" + "AB" + "AB"
    assert [len(turns[name]) for name in "AB"] == [2, 2]
    assert clock.asleep == pytest.approx(6 * protocol.PAUSE_SECONDS)


def test_a_short_step_is_timed_many_times_a_turn(clock):
    log = []
    only = contender("A", clock, [0.001], log)
    (turn,) = time_in_turns([only], rounds=1, warmups=0, turn_seconds=0.01)["A"]
    assert turn.wall == pytest.approx(0.001)
    assert 11 <= len(log) <= 12


def test_ratios_are_taken_round_by_round(clock):
    # A busy second round slows both; the ratio does not see it.
    ours = contender("tapegraph native", clock, [9.0, 1.0, 10.0, 1.0])
    theirs = contender("torch", clock, [9.0, 2.0, 20.0, 2.0])
    turns = time_in_turns([ours, theirs], rounds=3, warmups=0)
    seconds = {name: [turn.wall for turn in taken] for name, taken in turns.items()}
    assert seconds == {"tapegraph native": [1.0, 10.0, 1.0], "torch": [2.0, 20.0, 2.0]}
    result = contest.Result("fake", "about", seconds)
    assert result.ratio("tapegraph native", "torch") == Spread(0.5, 0.5, 0.5)
    assert (result.ours, result.theirs) == (["tapegraph native"], ["torch"])


def test_median_and_quartiles():
    assert protocol.ratio([1, 2, 3, 4, 5], [1, 1, 1, 1, 1]) == Spread(2, 3, 4)
    assert protocol.ratio([1, 3], [2, 2]) == Spread(0.75, 1.0, 1.25)


def test_a_spent_budget_leaves_two_rounds(clock):
    turns = time_in_turns([contender("A", clock, [1.0])], rounds=9, warmups=0, budget_seconds=0.5)
    assert len(turns["A"]) == 2


def test_settling_takes_steps_before_the_first_round(clock):
    log = []

    def step():
        clock.now += 1.0
        log.append(clock.now)
        return 0.0

    Contender("A", lambda: Trainer(step, lambda: []), settling_seconds=5.0).settle()
    assert len(log) == 5


# Agreement

PROBLEM = Problem([np.array([1.0, 2.0], np.float32)], [], rate=0.5)
GRADIENT = np.array([0.25, -0.5], np.float32)


def descends(name, *, loss=1.5, gradient=GRADIENT, dtype=np.float32):
    after = (PROBLEM.weights[0] - PROBLEM.rate * gradient).astype(dtype)
    return Contender(name, lambda: Trainer(lambda: loss, lambda: [after]))


def test_equal_steps_agree():
    check_agreement([descends("A"), descends("B", loss=1.5 + 1e-6)], PROBLEM)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss": 1.6}, "A and B differ in the loss by 0.1"),
        ({"loss": np.nan}, "differ in the loss by nan"),
        ({"gradient": 2 * GRADIENT}, "differ in the gradient 0 by 0.5"),
        ({"dtype": np.float64}, r"turned parameters of float32 \(2,\) into float64"),
    ],
)
def test_a_wrong_contender_is_named(wrong, message):
    with pytest.raises(protocol.Disagreement, match=message):
        check_agreement([descends("A"), descends("B", **wrong)], PROBLEM)


AGREEING = """
    import warnings
    from benchmarks import contest, peers
    from benchmarks.protocol import check_agreement
    from benchmarks.workloads import WORKLOADS

    warnings.simplefilter("ignore")  # of engines that fell back, and the peers' own
    peers.prepare(threads=1)
    settings = contest.Settings(settling_seconds=0.0)
    for name in WORKLOADS:
        module = contest.load(name)
        if hasattr(module, "problem"):  # `record` measures tapegraph alone
            result = contest.Result(name, module.ABOUT)
            problem = module.problem()
            contenders = contest.gather(module.CONTENDERS, problem, settings, result)
            check_agreement(contenders, problem)
            print(name, *(c.name for c in contenders), sep=",")
"""


def test_every_contender_computes_the_same(run_python):
    """In a process of their own: the libraries change settings of the whole process."""
    done = run_python(AGREEING, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    compared = dict(line.split(",", 1) for line in done.stdout.splitlines())
    assert set(compared) == set(WORKLOADS) - {"record"}
    assert all(names.startswith("tapegraph") for names in compared.values()), compared


# The report


def result():
    seconds = {
        "tapegraph native": [0.001, 0.002],
        "tapegraph auto": [0.002, 0.002],
        "torch": [0.002, 0.002],
    }
    skipped = {"jax": "jax is not installed"}
    return contest.Result("fake", "does nothing", seconds, skipped=skipped, notes=["so there"])


def test_table():
    assert report.table(result()).splitlines() == [
        "fake: does nothing (2 rounds)",
        "",
        "                  ms a step   tapegraph native / it  tapegraph auto / it",
        "tapegraph native       1.50",
        "tapegraph auto         2.00",
        "torch                  2.00  0.750 (0.625 to 0.875)  1.00 (1.00 to 1.00)",
        "",
        "- jax left out: jax is not installed",
        "- so there",
    ]


def test_markdown():
    lines = report.table(result(), markdown=True).splitlines()
    assert "| --- | ---: | ---: | ---: |" in lines
    assert "| torch | 2.00 | 0.750 (0.625 to 0.875) | 1.00 (1.00 to 1.00) |" in lines


def test_auto_is_compared_with_the_better_engine():
    totals = {"native": [1.0, 4.0], "tensorflow": [2.0, 2.0], "auto": [1.5, 3.0]}
    starts = {e: [auto.Start(t / 8, t, e) for t in found] for e, found in totals.items()}
    row = auto.Row("fake", True, starts)
    assert row.over_better == Spread(1.5, 1.5, 1.5)
    assert row.first_over_native == Spread(0.9375, 1.125, 1.3125)
    assert "1.50 (1.50 to 1.50)  1.12 (0.938 to 1.31)" in report.auto_table([row], 200)


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    report.write_png(str(tmp_path / "ratios.png"), [result()])
    assert (tmp_path / "ratios.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

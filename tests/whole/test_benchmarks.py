"""The benchmark's protocol: contenders must agree, take turns, and are compared round by round."""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg
from benchmarks import (
    allreduce,
    auto,
    batches,
    checkouts,
    contest,
    curves,
    environment,
    experiments,
    loops,
    ops,
    peers,
    protocol,
    report,
    rolled,
    second_order,
)
from benchmarks.contenders import COMPILED, load
from benchmarks.operations import ROWS
from benchmarks.processes import Failed, Process
from benchmarks.protocol import Contender, Problem, Spread, Trainer, check_agreement, time_in_turns
from benchmarks.workloads import WORKLOADS
from tapegraph.recording.op import OPS

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
    ) in "workload peer engine only ops rounds turn threads openblas-timeout auto json png".split():
        assert f"--{option} " in out or f"--{option}\n" in out
    for name in (*WORKLOADS, *peers.PEERS):
        assert name in out
    assert "OPENBLAS_THREAD_TIMEOUT=14" in out


def check_quick_run(tmp_path, names, *options):
    """Run ``tiny`` with these peers, and check the ratios of both kinds of step of ours."""
    written = tmp_path / "figures.json"
    chosen = (a for name in names for a in ("--peer", name))
    out = run(
        *("benchmarks", "--quick", "--only", "tiny", "--json", written),
        *chosen,
        *options,
        cwd=tmp_path,
    )
    figures = json.loads(written.read_text())
    tiny = figures["workloads"]["tiny"]
    for ours in ("tapegraph native", "tapegraph compiled native"):
        assert tiny["seconds"][ours]["median"] > 0
        for name in names:
            if peers.PEERS[name].module in figures["versions"]:
                ratio = tiny["ratios"][ours][name]
                low, high = ratio["quartiles"]
                assert 0 < low <= ratio["median"] <= high
            else:
                module = peers.PEERS[name].module
                assert f'{name} left out: {module} is not installed: pip install ".[' in out


def test_quick_run_of_two_processes_of_ours_and_a_peer(tmp_path):
    check_quick_run(tmp_path, ["autograd"], "--engine", "native")


@pytest.mark.thorough
def test_quick_run_with_whatever_is_installed(tmp_path):
    check_quick_run(tmp_path, [name for name in peers.PEERS if name != "micrograd"])


ONE_OPERATION = ("benchmarks", "--quick", "--ops", "--only", "add", "--engine", "native")


@pytest.mark.skipif(peers.missing("torch") is None, reason="PyTorch is here")
def test_without_pytorch_ops_say_so(tmp_path):
    out = run(*ONE_OPERATION, cwd=tmp_path, status=1)
    assert "compares with PyTorch: torch is not installed" in out


@pytest.mark.thorough
@pytest.mark.skipif(peers.missing("torch") is not None, reason="needs PyTorch")
def test_ops_of_one_operation(tmp_path):
    written = tmp_path / "figures.json"
    out = run(*ONE_OPERATION, "--json", written, cwd=tmp_path)
    assert "geometric mean of 8" in out
    figures = json.loads(written.read_text())
    assert {(o["label"], o["what"]) for o in figures["operations"]} == {
        (label, what) for label in ("add", "add, a row") for what in ("forward", "gradient")
    }
    assert not [note for note in figures["notes"] if "differ" in note]


def test_first_steps_of_a_fresh_process(tmp_path):
    out = run("benchmarks.first_steps", "tiny", "native", 3, cwd=tmp_path)
    start = json.loads(out)
    assert 0 < start["first"] < start["total"]
    assert start["ran"] == "native"


@pytest.mark.thorough
def test_a_curve_of_a_fresh_process(tmp_path):
    curve = curves.Curve(
        **json.loads(run("benchmarks.curves", "tiny", "native", 0.3, cwd=tmp_path))
    )
    assert curve.ran == "native"
    assert curve.seconds == sorted(curve.seconds) and curve.seconds[-1] >= 0.3
    assert curve.steps == sorted(curve.steps) and len(curve.steps) == len(curve.seconds)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workload", "nonsense"), "invalid choice: 'nonsense'"),
        (("--rounds", "1"), "at least 2"),
        (("--auto", "--png", "x.png"), "--auto draws no --png"),
        (("--only", "nonsense"), "no workload 'nonsense'"),
        (("--ops", "--only", "nonsense"), "no operation 'nonsense'"),
        (("--ops", "--workload", "tiny"), "--ops stands alone"),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments, message, tmp_path):
    out = run("benchmarks", *arguments, cwd=tmp_path, status=2)
    assert message in out
    assert "Traceback" not in out


def test_threads_cannot_be_fixed_once_numpy_is_there():
    with pytest.raises(RuntimeError, match="before NumPy is imported"):
        environment.settle(1)


# Processes

SHORT = contest.Settings(rounds=2, warmups=0, turn_seconds=0.0, settling_seconds=0.0)


@pytest.mark.thorough
def test_a_contest_of_two_processes_gives_ratios():
    result = contest.run("tiny", SHORT._replace(engines=["native"], peers=[]))
    assert result.ours == ["tapegraph native", "tapegraph compiled native"]
    ratio = result.ratio("tapegraph compiled native", "tapegraph native")
    assert 0 < ratio.low <= ratio.median <= ratio.high
    assert result.rounds == 2


@pytest.mark.thorough
def test_who_cannot_take_part_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setitem(peers.PEERS, "autograd", peers.Peer("no_such_module"))
    result = contest.run("tiny", SHORT._replace(engines=["native"], peers=["autograd"]))
    assert result.ours == ["tapegraph native", "tapegraph compiled native"]
    assert "no_such_module is not installed" in result.skipped["autograd"]


@pytest.mark.parametrize("kind", ["Unavailable", "ValueError"])
def test_who_finds_out_in_its_own_process_is_left_out_and_an_error_is_told(kind):
    def made():
        raise Failed(kind, "for some reason", "")

    result = contest.Result("scalar", "")
    contender = SimpleNamespace(name="somebody", made=made)
    if kind == "Unavailable":
        assert not contest._is_there(contender, result)
        assert result.skipped == {"somebody": "for some reason"}
    else:
        with pytest.raises(Failed, match="for some reason"):
            contest._is_there(contender, result)


def test_an_error_in_a_process_is_told_and_it_goes_on():
    process = Process("builtins:dict", {"a": 1})
    try:
        assert process.ask("get", "a") == 1
        with pytest.raises(Failed, match="no attribute 'nonsense'") as failed:
            process.ask("nonsense")
        assert failed.value.kind == "AttributeError"
        assert process.ask("get", "b", 2) == 2
    finally:
        process.end()


def test_what_a_process_prints_is_no_answer(capfd):
    process = Process("importlib:import_module", "builtins")
    try:
        assert process.ask("print", "printed") is None
        assert process.ask("len", "abc") == 3
    finally:
        process.end()
    assert capfd.readouterr() == ("", "printed\n")


def test_a_process_runs_the_tapegraph_of_another_checkout(tmp_path):
    (tmp_path / "tapegraph.py").write_text("from benchmarks import processes\n")
    process = Process("importlib:import_module", "tapegraph", checkout=tmp_path)
    try:
        assert process.ask("__getattribute__", "__file__") == str(tmp_path / "tapegraph.py")
    finally:
        process.end()


@pytest.mark.thorough
def test_a_process_runs_every_folder_of_another_checkout(tmp_path):
    """An editable install knows where the folders of this one are."""
    for name in ("tapegraph", "fallback"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    process = Process("importlib:import_module", "tapegraph.fallback", checkout=tmp_path)
    try:
        assert process.ask("__getattribute__", "__file__").startswith(str(tmp_path))
    finally:
        process.end()


def test_each_workload_of_two_checkouts_has_a_compiled_step():
    for workload in checkouts.WORKLOADS:
        assert COMPILED in load(workload).CONTENDERS


def test_a_process_that_ends_is_an_error_with_its_status():
    process = Process("os:_exit", 3)
    try:
        with pytest.raises(Failed, match="its process ended with status 3"):
            process.ask("get", "a")
    finally:
        process.end()


# The table of operations


def test_every_operation_has_a_row_or_is_listed_without_counterpart():
    # A product with strong zeros has no public function; its time is that of the plain one.
    assert {row.op for row in ROWS} == {name for name, op in OPS.items() if op.plain is None}
    for row in ROWS:
        assert callable(row.theirs) or row.theirs, row.label
    assert len({row.label for row in ROWS}) == len(ROWS)
    for name, op in OPS.items():
        if op.differentiable == ():
            assert not any(row.gradient for row in ROWS if row.op == name), name


def test_ops_are_sorted_by_their_worst_ratio_with_a_geometric_mean():
    rows = {row.label: row for row in ROWS}
    measured = ops.Measured(without={"gamma": "none"})
    for label, what, ours in (
        ("add", "forward", 1.0),
        ("add", "gradient", 2.0),
        ("sin", "forward", 4.0),
    ):
        seconds = {"tapegraph native": [ours, ours], "torch": [1.0, 1.0]}
        measured.timings.append(ops.Timing(rows[label], "float64", what, seconds))
    assert measured.geometric_mean("tapegraph native") == pytest.approx(2.0)
    lines = ops.table(measured, "tapegraph native").splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["sin", "add"]
    assert lines[-1] == "geometric mean of 3: 2.00; beyond 2: 1"
    assert "- gamma has no counterpart: none" in ops.remarks(measured)


def test_a_view_counts_in_the_graph_with_its_gradient_alone():
    row = next(row for row in ROWS if row.label == "transpose")
    seconds = {name: [1.0, 1.0] for name in ("tapegraph native", "tapegraph tensorflow", "torch")}
    timings = [ops.Timing(row, "float64", what, seconds) for what in ops.WHATS]
    measured = ops.Measured(timings)
    assert len(measured.ratios("tapegraph native")) == 2
    assert list(measured.ratios("tapegraph tensorflow")) == [("transpose", "gradient", "float64")]


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
        ({"loss": 1.6}, "A and B differ in the loss of step 1 by 0.1"),
        ({"loss": np.nan}, "differ in the loss of step 1 by nan"),
        ({"gradient": 2 * GRADIENT}, "differ in the gradient 0 of step 1 by 0.5"),
        ({"dtype": np.float64}, r"turned parameters of float32 \(2,\) into float64"),
    ],
)
def test_a_wrong_contender_is_named(wrong, message):
    with pytest.raises(protocol.Disagreement, match=message):
        check_agreement([descends("A"), descends("B", **wrong)], PROBLEM)


def test_what_a_replayed_step_does_wrong_is_seen():
    """The first two calls of a compiled step are eager; a program that is wrong shows later."""

    def replayed(name, later):
        taken = []

        def step():
            taken.append(GRADIENT if len(taken) < 2 else later)
            return 1.5

        return Contender(name, lambda: Trainer(step, lambda: [PROBLEM.weights[0] - sum(taken) / 2]))

    check_agreement([replayed("A", GRADIENT), replayed("B", GRADIENT)], PROBLEM)
    with pytest.raises(protocol.Disagreement, match="gradient 0 of step 4"):
        check_agreement([replayed("A", GRADIENT), replayed("B", 2 * GRADIENT)], PROBLEM)


AGREEING = """
    import sys
    import warnings
    from contextvars import copy_context
    from benchmarks import peers
    from benchmarks.contenders import load
    from benchmarks.protocol import Contender, Unavailable, check_agreement
    import tapegraph as tg

    warnings.simplefilter("ignore")  # of engines that fell back, and the peers' own
    peers.prepare(threads=1)
    for workload in sys.argv[1:]:
        module, contenders = load(workload), []
        given = [module.Sizes(2, 16, 8, 3, 11)] if workload == "gpt" else []
        problem = module.problem(*given)
        for name, build in module.CONTENDERS.items():
            ours = peers.peer_of(name) == "tapegraph"
            if not ours and peers.why_not(peers.peer_of(name)) is not None:
                continue
            for engine in ("native", "tensorflow") if ours else ("native",):
                context = copy_context()
                context.run(tg.set_backend, engine)
                try:
                    trainer = context.run(build, problem)
                except Unavailable:
                    continue
                step = lambda context=context, step=trainer.step: context.run(step)
                trainer = trainer._replace(step=step)
                contenders.append(Contender(f"{name} {engine}", lambda trainer=trainer: trainer))
        check_agreement(contenders, problem)
        print(workload, *(c.name for c in contenders), sep=",")
"""


def check_contenders(run_python, workloads):
    """In a process of their own: the libraries change settings of the whole process."""
    code = AGREEING.replace("sys.argv[1:]", repr(list(workloads)))
    done = run_python(code, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    compared = dict(line.split(",", 1) for line in done.stdout.splitlines())
    assert set(compared) == set(workloads)
    assert all(names.startswith("tapegraph") for names in compared.values()), compared


@pytest.mark.thorough
@pytest.mark.parametrize("workload", sorted(set(WORKLOADS) - {"record"}))
def test_every_contender_of_a_workload_computes_the_same(run_python, workload):
    check_contenders(run_python, [workload])


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
        "                  ms a step  tapegraph native ÷ this  tapegraph auto ÷ this",
        "tapegraph native       1.50",
        "tapegraph auto         2.00",
        "torch                  2.00   0.750 (0.625 to 0.875)    1.00 (1.00 to 1.00)",
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


def curve(*stretches: tuple[float, float]) -> curves.Curve:
    """Return a curve of stretches, each of so many seconds and seconds a step."""
    now, done = 0.0, 0
    seconds, steps = [], []
    for length, each in stretches:
        for _ in range(round(length / each)):
            now, done = now + each, done + 1
            seconds.append(now)
            steps.append(done)
        if each > length:  # nothing is done: it is being compiled
            now += length
    return curves.Curve(seconds, steps, "")


SLOW, FAST = curve((20.0, 0.1)), curve((4.0, 99.0), (16.0, 0.02))
BETWEEN = curve((4.0, 0.1), (4.0, 99.0), (12.0, 0.02))  # what renting skis for 4 s gives


def test_a_curve_tells_when_a_step_was_done_and_what_one_takes():
    assert SLOW.until(50) == pytest.approx(5.0)
    assert SLOW.until(201) == math.inf
    assert FAST.until(50) == pytest.approx(5.0)
    assert SLOW.last_step == pytest.approx(0.1)
    assert BETWEEN.step(10.0) == pytest.approx(0.02)


def test_a_race_tells_how_far_auto_is_from_the_best_engine():
    ratio, at = curves.over_best(BETWEEN, [SLOW, FAST])
    assert (ratio, at) == pytest.approx((8.02 / 4.1, 8.02))
    assert curves.over_best(FAST, [FAST])[0] == 1.0
    assert curves.settled_after(BETWEEN, 0.02) == pytest.approx(8.0, abs=0.5)
    assert curves.settled_after(SLOW, 0.01) == math.inf
    assert curves.settled_after(SLOW, 0.1) == 0.0
    one = auto.Race("fake", {"native": [SLOW], "tensorflow": [FAST], "auto": [BETWEEN]})
    (_, cells) = auto.race_cells([one], 10.0)
    assert cells[:4] == ["fake", "100", "20", ""]
    assert cells[4] == "1.00"
    assert cells[-2:] == ["1.96", "8.0"]


@pytest.mark.thorough
def test_a_race_is_read_again_and_drawn(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    written = tmp_path / "curves.json"
    curves_of = {"native": [SLOW], "tensorflow": [FAST], "auto": [BETWEEN]}
    written.write_text(json.dumps({"tiny": curves_of, "mlp": curves_of}))
    picture = tmp_path / "curves.png"
    assert auto.main(["--read", str(written), "--png", str(picture), "--markdown"]) == 0
    assert "| mlp | 100 | 20 |  | 1.00 |" in capsys.readouterr().out
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    report.write_png(str(tmp_path / "ratios.png"), [result()])
    assert (tmp_path / "ratios.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# Derivatives of second order


@pytest.mark.parametrize("name", second_order.FUNCTIONS)
def test_hessians_that_are_timed_are_autograds(name):
    pytest.importorskip("autograd.numpy")
    with tg.use_backend("native"):
        (ours,), (theirs,) = (second_order.hessian(name, one)() for one in ("ours", "autograd"))
    assert ours.shape == (second_order.VARIABLES,) * 2
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


@pytest.mark.thorough
def test_the_command_of_second_order(tmp_path):
    out = run("benchmarks.orders", "--rounds", "2", cwd=tmp_path)
    for name in (*second_order.FUNCTIONS, "compiled", "first three calls", "native", "tensorflow"):
        assert re.search(rf"^{name} +([\d.]+  [\d.]+ \([\d.]+ to [\d.]+\)|left out: )", out, re.M)
    assert ("it ran natively" in out) == (importlib.util.find_spec("tensorflow") is None)


# Simulations


@pytest.mark.parametrize("name", rolled.FUNCTIONS)
def test_simulations_that_are_timed_are_autograds(name):
    pytest.importorskip("autograd.numpy")
    theirs = rolled.value_and_gradient(name, 5, "autograd")()
    with tg.use_backend("native"):
        for how in rolled.WAYS:
            run = rolled.value_and_gradient(name, 5, how)
            for _ in range(4):  # recorded twice, then replayed
                ours = run()
            for a, b in zip(ours, theirs, strict=True):
                assert np.shape(a) == np.shape(b)
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())


@pytest.mark.thorough
def test_the_command_of_simulations(tmp_path):
    out = run("benchmarks.simulation", "--rounds", "2", cwd=tmp_path)
    quoted = r"[\d.]+ \([\d.]+ to [\d.]+\)"
    for name, sides in rolled.SIDES.items():
        for side in sides:
            line = rf"^{name} {side}x{side} +([\d.]+  {quoted} +{quoted}|left out: )"
            assert re.search(line, out, re.M), out


@pytest.mark.thorough
def test_the_command_of_complex_numbers(tmp_path):
    out = run(
        "benchmarks.complex_numbers", "--rounds", "2", "--only", "mirror", "--native", cwd=tmp_path
    )
    for how in ("native", "compiled native", "the other library"):
        assert f"| mirror, {how} | " in out


# Many steps in one call


@pytest.mark.thorough
def test_the_loops_train_alike():
    pytest.importorskip("autograd")
    for workload in loops.WORKLOADS.values():
        problem = workload.problem()
        problem = problem._replace(data=[rows[:6] for rows in problem.data])
        found = []
        for peer, make in loops.THEIRS.items():
            if peer.startswith(("torch", "autograd")) and not peers.missing(peers.peer_of(peer)):
                call, weights = make(problem, workload.loss)
                found.append([call(), *weights()])
        call, weights = loops.with_tapegraph(problem, workload.loss, xla=False)
        with tg.use_backend("native"):
            ours = [call(), *weights()]
        tolerance = protocol.TOLERANCE[ours[-1].dtype]
        for theirs in found:
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


@pytest.mark.thorough
def test_the_command_of_scans(tmp_path):
    options = ("--rounds", "2", "--firsts", "1", "--only", "digits", "--native")
    out = run("benchmarks.scans", *options, cwd=tmp_path)
    assert "| digits' network by scan, 44 steps a call | first call, s | us a step |" in out
    assert re.search(r"^\| tapegraph native \| \S+ \| \S+ \|", out, re.MULTILINE)


# Many examples at once


@pytest.mark.parametrize(
    "workload", ["gradients of 50 networks, 8-32-1", "Jacobian, R^100 to R^500"]
)
def test_the_batches_are_the_loops(workload):
    chosen = batches.WORKLOADS[workload]
    arrays = chosen.arrays(np.random.default_rng(0))
    with tg.use_backend("native"):
        found = [batches.with_tapegraph(chosen, arrays, how)() for how in ("loop", "eager")]
    loop, eager = (y if isinstance(y, tuple) else (y,) for y in found)
    for a, b in zip(eager, loop, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_the_command_of_batches(tmp_path):
    out = run("benchmarks", "--only", "batches", "--rounds", "2", cwd=tmp_path)
    assert out.count("| ms a call | tapegraph compiled, times as fast |") == len(batches.WORKLOADS)
    assert re.search(r"^\| tapegraph loop \| \S+ \| \S+ \(", out, re.MULTILINE)


# What an all-reduce costs


@pytest.mark.thorough
def test_the_graphs_of_a_step_that_experiments_time_agree():
    pytest.importorskip("tensorflow")
    graph, _, feeds = experiments.compiled_step("tiny")
    _, with_xla, alike = experiments.compiled_step("tiny")  # with state of its own
    assert not graph.with_xla and with_xla.with_xla
    numbers = [output() for output in graph(feeds, lambda outputs: iter(()))]
    for one, two in zip(with_xla(alike, lambda outputs: iter(())), numbers, strict=True):
        np.testing.assert_allclose(one(), two, rtol=1e-12)


def test_the_fit_finds_the_network_that_it_was_computed_with():
    for ranks in (2, 8):
        seconds = {n: allreduce.model(ranks, n, 3e-6, 2e9) for n in allreduce.SIZES}
        np.testing.assert_allclose(allreduce.fitted(seconds, ranks), (3e-6, 2e9))
    assert allreduce.model(2, 250, 1e-6, 1e3) == pytest.approx(2e-6 + 1.0)  # 1000 bytes


@pytest.mark.thorough
def test_the_all_reduce_is_measured(tmp_path):
    pytest.importorskip("mpi4py")
    out = run("benchmarks.allreduce", "--ranks", 2, "--sizes", 10, 1000, cwd=tmp_path)
    assert re.search(r"^fitted on 2 ranks: .+ us, .+ GB/s$", out, re.MULTILINE)
    assert len(re.findall(r"^\| 2 \| 10+ |^\| 2 \| 1,000 ", out, re.MULTILINE)) == 2

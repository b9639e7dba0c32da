"""Every example runs on both engines, eagerly and compiled, and reaches what it promises."""

import contextlib
import contextvars
import csv
import http.client
import importlib.util
import io
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from optional import optional

import tapegraph as tg
from tests.quick import thinned

pyplot = optional("matplotlib.pyplot")
tqdm = pytest.importorskip("tqdm").tqdm
optional("sklearn")

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples"
EXAMPLES = sorted(p.stem for p in SCRIPTS.glob("[!_]*.py"))
# It registers an operation, for as long as its process lives.
REGISTERS = "defop_scipy"
# It starts MPI for its process: tests/distributed runs it, on two ranks.
RANKS = "data_parallel"
# It needs TensorFlow, whatever the engine, and a second process.
SERVES = "serve"
# It is a script to copy, with options of its own.
SCRIPT = "training"
HERE = [name for name in EXAMPLES if name not in (REGISTERS, RANKS, SERVES, SCRIPT)]
# Single numbers, which have an engine of their own.
SCALARS = {"microgpt", "moons"}
# No graph node for conv2d; one trains nothing. The graphs of a Hessian through a Cholesky factor,
# and of a circuit of many gates, take long to compile: thorough runs compare those.
NATIVE = {"cnn_digits", "gaussian_process", "quantum_circuit", "verify_gradients", *SCALARS}
# Steps that are SciPy's minimisers', and not compiled.
EAGER = {"gaussian_process"}
WITH_NODES = [name for name in HERE if name not in NATIVE]
# Without --thorough some run in one way or the other too, and all compiled but those of single
# numbers: they take thousands, and recording them takes most of the time.
EAGERLY_TOO = [
    pytest.param(name, marks=[] if name == "linear_regression" else [pytest.mark.thorough])
    for name in HERE
]
IN_TENSORFLOW_TOO = [
    pytest.param(name, marks=[] if name == "linear_regression" else [pytest.mark.thorough])
    for name in WITH_NODES
]
TWICE = {str(row.values[0]) for row in (*EAGERLY_TOO, *IN_TENSORFLOW_TOO) if not row.marks}
# They sample, or leave minimising to SciPy, or compute numbers of their own.
WITHOUT_OPTIMIZER = {"gaussian_process", "hmc", "microgpt", "predator_prey", "verify_gradients"}
# Those have tests of their own.
ALONE = {"cnn_digits", "hmc", "inverse_design", "phase_retrieval", "quantum_circuit", "wave"}
# Run with --thorough alone: they take longest, and others do what they do; the README's command is
# digits, whole.
LONG = {"digits", "embedding", "gpt", "gradient_penalty", "masked_attention", "rnn", *SCALARS}
LONG |= {"ensemble", "predator_prey", "self_attention", "yolo_head"}
# What an example measures: the first figure of these lines.
MEASURED = re.compile(r"^ *(?:accuracy|error|test|overlap|found|mse) +([\d.]+)", re.MULTILINE)

# What depends on the clock or on the engine: those lines, and progress bars.
CHANGES = re.compile(r"^(engine|cache|compiled|loop|scan|speed) |^ {10}[\d.]+ ms compiled|%\|")

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


def run(*command: object, cwd: Path, status: int = 0) -> str:
    """Run Python and return all it printed; `cwd` and the checkout are importable."""
    path = os.pathsep.join([str(cwd), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture
def run_here(monkeypatch, tmp_path, thorough):
    """Run an example as `run` would, but in this process, and in a folder of its own.

    Its picture is small without --thorough: drawing takes longer than many a quick run.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SCRIPTS))  # as Python does with a script's folder
    monkeypatch.setenv("MPLBACKEND", "Agg")

    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # no thread that outlives the test
    if not thorough:
        whole = pyplot.Figure.savefig
        monkeypatch.setattr(pyplot.Figure, "savefig", lambda f, path, **_: whole(f, path, dpi=40))

    def run_here(name: str, *options: object) -> str:
        monkeypatch.setattr(sys, "argv", [str(SCRIPTS / f"{name}.py"), *map(str, options)])
        tg.tape_reset()  # of entries in garbage that nobody has collected
        tg.lowering.cache_clear()  # the script counts what it compiles itself
        printed = io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("default")
            try:
                # In a context of its own: a script chooses its engine.
                contextvars.copy_context().run(runpy.run_path, sys.argv[0], run_name="__main__")
            except SystemExit as end:
                assert not end.code, f"{end.code}\n{printed.getvalue()}"
        printed.writelines(f"{w.category.__name__}: {w.message}\n" for w in warned)
        return printed.getvalue()

    yield run_here
    pyplot.close("all")


@pytest.fixture
def trained(monkeypatch):
    """Every optimizer's parameters, in the order in which the optimizers were made."""
    found = []

    def noting(kind):
        def make(params, *args, **kwargs):
            optimizer = kind(params, *args, **kwargs)
            found.append(optimizer.params)
            return optimizer

        return make

    for kind in (tg.SGD, tg.Adam):
        monkeypatch.setattr(tg, kind.__name__, noting(kind))
    return found


def said(out: str) -> list[str]:
    """What a run printed but for times and engines."""
    return [line for line in out.splitlines() if line and not CHANGES.search(line)]


def figures(out: str) -> list[float]:
    found = [float(figure) for figure in MEASURED.findall(out)]
    assert found, out
    return found


def assert_picture(path: Path) -> None:
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if name in LONG else [])
        for name in sorted({*HERE} - TWICE - ALONE)
    ],
)
def test_example_draws_what_it_learned(name, run_here):
    how = "--no-compile" if name in SCALARS else "--compile"
    assert f"{name}.png" in run_here(name, "--quick", "--backend", "native", how)
    assert_picture(Path(f"{name}.png"))


@pytest.mark.parametrize("name", EAGERLY_TOO)
def test_example_is_the_same_eagerly_and_compiled(name, run_here, trained):
    picture = Path(f"{name}.png")
    runs = []
    for how, engine in (
        ("--no-compile", r"native"),
        ("--compile", r"\w+; .+ compiled (once|2 times)$"),
    ):
        out = run_here(name, "--quick", "--backend", "native", how)
        assert picture.name in out
        assert_picture(picture)
        says = name not in EAGER and (name not in SCALARS or how == "--compile")
        assert not says or re.search(f"^engine +{engine}", out, re.MULTILINE)
        numbers = [np.array(p.data) for params in trained for p in params]
        runs.append((out, picture.read_bytes(), numbers))
        trained.clear()
    (eager, *drawn), (compiled, *drawn_compiled) = runs
    assert said(compiled) == said(eager)
    assert drawn_compiled[0] == drawn[0]  # every loss, to a pixel
    assert drawn[1] or name in WITHOUT_OPTIMIZER
    # Digits measures with more optimizers, when all is done.
    for ours, theirs in zip(drawn_compiled[1], drawn[1], strict=name != "digits"):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not here")
@pytest.mark.parametrize("name", IN_TENSORFLOW_TOO)
def test_example_is_alike_on_both_engines(name, run_here):
    by_sweep = run_here(name, "--quick", "--backend", "native", "--compile")
    by_graph = run_here(name, "--quick", "--backend", "tensorflow", "--no-compile")
    assert_picture(Path(f"{name}.png"))
    assert re.search("^engine +tensorflow$", by_graph, re.MULTILINE)
    held = r"^cache +\d+ held, [1-4] compiled, [1-9]\d+ found"
    assert re.search(held, by_graph, re.MULTILINE)
    assert figures(by_graph) == pytest.approx(figures(by_sweep), rel=0.02)


@pytest.mark.thorough
@pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not here")
@pytest.mark.parametrize("name", [name for name in HERE if name not in SCALARS])
def test_compiled_example_is_alike_on_both_engines(name, run_here):
    options = ("--quick", "--compile", "--backend")
    by_plan, by_graph = (run_here(name, *options, engine) for engine in ("native", "tensorflow"))
    if name == "verify_gradients":
        assert by_graph.count("  ok") == by_plan.count("  ok") > 0
        return
    assert figures(by_graph) == pytest.approx(figures(by_plan), rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["auto", "tensorflow"])
def test_convolution_says_that_it_runs_natively(backend, run_here):
    pytest.importorskip("tensorflow")
    out = run_here("cnn_digits", "--quick", "--backend", backend, "--no-compile")
    assert re.search(r"^engine +native \(conv2d ", out, re.MULTILINE)
    assert ("RuntimeWarning" in out) == (backend == "tensorflow")
    assert_picture(Path("cnn_digits.png"))


def assert_explains(out: str) -> None:
    for option in ("--backend", "--compile", "--no-compile", "--seed", "--out", "--quick"):
        assert option in out
    assert "You learn" in out


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*HERE, SERVES, SCRIPT])
def test_script_explains_itself(name, run_here):
    assert_explains(run_here(name, "--help"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("out", "place"),
    [
        ("plots", "plots/linear_regression.png"),
        ("there", "there/linear_regression.png"),
        ("new/folder/line.svg", "new/folder/line.svg"),
    ],
)
def test_a_picture_may_go_into_a_folder(out, place, run_here):
    Path("there").mkdir()
    printed = run_here("linear_regression", "--quick", "--out", out)
    assert f"picture   {place}\n" in printed.replace("\\", "/") and Path(place).stat().st_size > 0


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ("file/line.png", "--out: no picture can be saved in the folder file: "),
        ("line.txt", "--out: line.txt is no picture; it may end in ."),
    ],
)
def test_where_no_picture_can_go_is_told_before_the_training(out, text, run_here):
    Path("file").touch()
    with pytest.raises(AssertionError, match=r"^2\n") as told:  # the status
        run_here("linear_regression", "--out", out)
    assert text in str(told.value) and "mse" not in str(told.value)


def assert_says_what_it_gained(out: str, engines: int) -> None:
    line = r"^speed +(.+) ms a training step, run eagerly by NumPy$"
    (eager,) = re.findall(line, out, re.MULTILINE)
    line = r"^ +(.+) ms compiled, engine \w+: (.+) times as fast, after .+ s of compiling$"
    found = re.findall(line, out, re.MULTILINE)
    assert len(found) == engines
    for compiled, factor in found:
        assert float(factor) == pytest.approx(float(eager) / float(compiled), rel=0.1, abs=0.1)


@pytest.mark.thorough
def test_digits_are_learned_alike_by_both_engines(run_here):
    """The README's first command, whole."""
    by_plan = run_here("digits", "--backend", "native", "--out", "here.png")
    assert_picture(Path("here.png"))
    assert figures(by_plan)[0] >= 97
    assert_says_what_it_gained(by_plan, 1)
    if TENSORFLOW:
        by_graph = run_here("digits", "--backend", "tensorflow")
        assert re.search(r"^engine +tensorflow; .+ compiled once$", by_graph, re.MULTILINE)
        assert_says_what_it_gained(by_graph, 2)
        assert abs(figures(by_graph)[0] - figures(by_plan)[0]) <= 0.5


@pytest.mark.thorough
@pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not here")
def test_what_is_served_gives_the_eager_answers(run_here):
    out = run_here(SERVES, "--quick", "--backend", "native")
    assert_picture(Path(f"{SERVES}.png"))
    assert "tapegraph in the server: False" in out
    assert figures(out)[0] >= 90
    (apart,) = re.findall(r"^apart +(\S+) at most", out, re.MULTILINE)
    assert float(apart) < 1e-5


@pytest.fixture
def served(tmp_path):
    """Connections to the example's server of a model, in a thread of this process."""
    tf = pytest.importorskip("tensorflow")
    w = tg.param(np.array([[2.0], [1.0]]), name="w")
    tg.export(
        lambda x, places: {"y": x @ w, "places": places + 1}, tmp_path, np.ones((3, 2)), [0] * 3
    )
    names = runpy.run_path(str(SCRIPTS / "_server.py"))
    handler = names["handler"](tf.saved_model.load(str(tmp_path)))
    with names["ThreadingHTTPServer"](("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield lambda: http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        server.shutdown()
        thread.join()


def asked(there, body, **head):
    there.request("POST", "/v1/models/any:predict", body, head)
    response = there.getresponse()
    assert response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(response.read(), parse_constant=pytest.fail)


@pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not here")
def test_the_server_answers_whatever_it_is_sent(served):
    def inputs(x, places):
        return f'{{"inputs": {{"x": {x}, "places": {places}}}}}'

    with contextlib.closing(served()) as there:  # one connection, which lives on
        good = {"outputs": {"y": [[4.0]], "places": [1]}}
        assert asked(there, inputs("[[1, 2]]", "[0]")) == (200, good)
        assert asked(there, inputs("[]", "[]")) == (200, {"outputs": {"y": [], "places": []}})
        status, answer = asked(there, inputs("[[NaN, 0], [1e400, 0], [1, 0]]", "[0, 0, 0]"))
        assert (status, answer["outputs"]["y"]) == (200, [[None], [None], [2.0]])
        for wrong in (
            "[" * 100_000,
            inputs(f"[[{'9' * 400}, 0]]", "[0]"),
            inputs("[[1, 2]]", f"[{'9' * 400}]"),
            inputs("[[1, 2]]", f"[{'9' * 5000}]"),
            inputs("[[1, 2]]", "[0.5]"),
            inputs("[[1, 2, 3]]", "[0]"),
            inputs("[[1, 2], [3]]", "[0, 0]"),
            "[]",
            "\xff",
        ):
            status, answer = asked(there, wrong)
            assert status == 400 and answer["error"]
        assert asked(there, inputs("[[1, 2]]", "[0]")) == (200, good)
    for length in ("-1", "many", str(1 << 40)):
        with contextlib.closing(served()) as there:
            there.putrequest("POST", "/")
            there.putheader("Content-Length", length)
            there.endheaders()
            response = there.getresponse()
            assert response.status == 400 and "error" in json.loads(response.read())


@pytest.mark.skipif(TENSORFLOW, reason="TensorFlow is here")
def test_serving_without_tensorflow_is_one_clear_line(tmp_path):
    out = run(SCRIPTS / f"{SERVES}.py", "--quick", cwd=tmp_path, status=1)
    assert out.startswith("This example exports to TensorFlow. TensorFlow is not installed.")
    assert "Traceback" not in out


# ------------------------------------------------------------------ the training script


def curves(folder: str) -> list[dict[str, float]]:
    with open(f"{folder}/curves.csv", newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.mark.thorough
def test_a_run_that_was_interrupted_ends_with_the_same_bits(run_here, monkeypatch):
    whole = run_here(SCRIPT, "--epochs", 2, "--folder", "whole")
    assert_picture(Path("training.png"))
    drawn = Path("training.png").read_bytes()
    made, epochs = tg.data.batches, 0

    class Interrupted:
        """Batches, in whose second loop somebody presses Ctrl-C."""

        def __init__(self, *arrays, **options):
            self.batches = made(*arrays, **options)

        def __len__(self):
            return len(self.batches)

        def __iter__(self):
            nonlocal epochs
            epochs += 1
            for i, batch in enumerate(self.batches):
                if (epochs, i) == (2, 5):
                    raise KeyboardInterrupt
                yield batch

    with monkeypatch.context() as patch:
        patch.setattr(tg.data, "batches", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_here(SCRIPT, "--epochs", 2, "--folder", "parts", "--resume")
    assert len(curves("parts")) == 1
    resumed = run_here(SCRIPT, "--epochs", 2, "--folder", "parts", "--resume")
    assert said(resumed)[:-1] == said(whole)[:-1]  # the last line names the folder
    assert Path("training.png").read_bytes() == drawn
    for name in ("last.npz", "best.npz", "curves.csv"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()

    # Nothing is left to do.
    again = run_here(SCRIPT, "--epochs", 2, "--folder", "parts", "--resume")
    assert said(again) == said(resumed)
    with pytest.raises(AssertionError, match=r"--resume: received \{'epochs': 5.+'epochs': 2"):
        run_here(SCRIPT, "--epochs", 5, "--folder", "parts", "--resume")


@pytest.mark.thorough
def test_the_script_stops_when_it_does_not_get_better(run_here):
    out = run_here(SCRIPT, "--epochs", 40, "--patience", 1, "--dtype", "float64")
    losses = [row["valid_loss"] for row in curves("training")]
    best = int(np.argmin(losses)) + 1
    assert len(losses) == best + 1 < 40
    assert f"after epoch {best}, the best of {best + 1}" in out
    saved = tg.load("training/best.npz")["model"]["out"]
    assert saved.dtype == np.float64
    assert not np.array_equal(saved, tg.load("training/last.npz")["model"]["out"])


@pytest.mark.thorough
def test_the_script_trains_alike_eagerly_and_in_parts(run_here):
    for how, engine in (("compile", "native; .+ compiled once"), ("no-compile", "native")):
        out = run_here(SCRIPT, "--quick", f"--{how}", "--parts", 2, "--folder", how)
        assert re.search(f"^engine +{engine}$", out, re.MULTILINE)
    assert Path("compile/last.npz").read_bytes() == Path("no-compile/last.npz").read_bytes()


@pytest.mark.thorough
def test_gradients_of_parts_are_those_of_the_whole_batch(monkeypatch):
    names = runpy.run_path(str(SCRIPTS / f"{SCRIPT}.py"))
    names["new_steps"].__globals__["DROPOUT"] = 0.0  # which draws otherwise for parts
    tg.random.seed(5)
    model = names["new_model"]()
    images, labels = np.random.default_rng(0).random((8, 8, 8)), np.arange(8)
    found = []
    for parts in (1, 4):
        step, _ = names["new_steps"](model, tg.SGD(model, lr=0.0), compile=True)
        loss, norm = step(images.reshape(parts, -1, 8, 8), labels.reshape(parts, -1))
        gradients = [p.grad.copy() for p in tg.parameters(model).values()]
        found.append([loss.item(), norm.item(), *gradients])
    for whole, in_parts in zip(*found, strict=True):
        np.testing.assert_allclose(in_parts, whole, rtol=1e-9, atol=1e-12)


def test_curves_for_tensorboard(run_here):
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(
            AssertionError, match=r"^--tensorboard needs .+ pip install tensorboard"
        ):
            run_here(SCRIPT, "--quick", "--tensorboard")
        return
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_here(SCRIPT, "--quick", "--tensorboard")
    board = EventAccumulator("training/tensorboard").Reload()
    for name in curves("training")[0]:
        found = [float(tensor.tensor_proto.float_val[0]) for tensor in board.Tensors(name)]
        np.testing.assert_allclose(found, [row[name] for row in curves("training")], rtol=1e-6)


@pytest.mark.thorough
def test_the_script_learns_digits(run_here):
    out = run_here(SCRIPT)
    assert figures(out)[0] >= 94
    if TENSORFLOW:
        by_graph = run_here(SCRIPT, "--backend", "tensorflow")
        assert re.search(r"^engine +tensorflow; .+ compiled once$", by_graph, re.MULTILINE)
        assert abs(figures(by_graph)[0] - figures(out)[0]) <= 2


# ------------------------------------------------------------------ complex numbers


def printed(out: str, name: str) -> float:
    (figure,) = re.findall(rf"^{name} +([-+.\de]+)", out, re.MULTILINE)
    return float(figure)


@pytest.mark.thorough
def test_a_designed_mirror_starts_from_waves_in_closed_form(run_here):
    out = run_here("inverse_design", "--quick", "--backend", "native")
    assert printed(out, "empty") < 1e-3
    assert printed(out, "gradient") < 1e-6
    # Four quarter waves of index 2 in air: admittance 2^8.
    (closed,) = re.findall(r"([\d.]+) through 4 quarter waves, closed form", out)
    assert float(closed) == pytest.approx(1 - ((1 - 256) / (1 + 256)) ** 2, abs=1e-5)
    (on_grid,) = re.findall(r"([\d.]+) through the same, on this grid", out)
    assert float(on_grid) == pytest.approx(float(closed), rel=0.06)
    assert printed(out, "found") < 0.05  # of 0.93
    assert_picture(Path("inverse_design.png"))


@pytest.mark.thorough
def test_a_designed_mirror_is_as_good_as_the_stack_of_quarter_waves(run_here):
    out = run_here("inverse_design", "--backend", "native")
    assert printed(out, "found") == pytest.approx(0.01473, rel=0.1)
    assert printed(out, "alike") >= 90


@pytest.mark.thorough
def test_a_circuits_gradient_is_the_parameter_shift_rules(run_here):
    out = run_here("quantum_circuit", "--quick", "--backend", "native")
    assert printed(out, "shifts") < 1e-12
    # The critical ring of n spins, by fermions: -2 / sin(pi / 2n) for a field of one.
    assert f"above {-2 / np.sin(np.pi / 12):.6f}, the exact" in out
    assert_picture(Path("quantum_circuit.png"))


@pytest.mark.thorough
def test_a_circuit_finds_the_ground_state(run_here):
    out = run_here("quantum_circuit", "--backend", "native")
    assert printed(out, "error") <= 1e-6
    assert printed(out, "overlap") >= 0.999999


@pytest.mark.thorough
def test_a_picture_is_recovered_from_magnitudes(run_here):
    out = run_here("phase_retrieval", "--quick", "--seed", 1, "--backend", "native")
    assert printed(out, "error") < 1e-4
    assert printed(out, "loss") < 1e-12
    assert_picture(Path("phase_retrieval.png"))


@pytest.mark.thorough
def test_drops_are_found_by_their_waves(run_here):
    out = run_here("wave", "--quick", "--seed", 1, "--backend", "native")
    assert printed(out, "error") < 1.5
    assert_picture(Path("wave.png"))


# ------------------------------------------------------------------ a posterior, an inverse problem


def test_draws_have_the_posteriors_moments(run_here):
    out = run_here("hmc", "--quick", "--backend", "native")
    assert printed(out, "error") < 4 * printed(out, "expected")
    assert printed(out, "expected") < 0.05 and printed(out, "r-hat") < 1.02
    widths = re.findall(
        r"^(?:draws|grid) +intercept .+ \+- (.+), slope .+ \+- (.+)$", out, re.MULTILINE
    )
    drawn, exact = np.array(widths, float)
    np.testing.assert_allclose(drawn, exact, rtol=0.1)
    assert_picture(Path("hmc.png"))


def test_the_posterior_is_that_of_a_logistic_regression(monkeypatch):
    stats = optional("scipy.stats")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = runpy.run_path(str(SCRIPTS / "hmc.py"))
    places = np.array([[0.0, 0.0], [-0.6, 3.6], [2.0, -1.0]])
    expected = [
        stats.bernoulli.logpmf(names["MALIGNANT"], 1 / (1 + np.exp(-a - b * names["X"]))).sum()
        + stats.norm.logpdf([a, b], scale=names["PRIOR"]).sum()
        for a, b in places
    ]
    found = names["log_density"](places)
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], rtol=1e-10)
    # What is known of draws that do not depend on each other, or that move on by 0.5 a step.
    noise = np.random.default_rng(0).normal(size=(4000, 4, 1))
    assert names["independent"](noise) == pytest.approx(16000, rel=0.1)
    assert names["r_hat"](noise) == pytest.approx(1.0, abs=0.002)
    for i in range(1, len(noise)):
        noise[i] += 0.5 * noise[i - 1]
    assert names["independent"](noise) == pytest.approx(16000 / 3, rel=0.1)
    assert names["r_hat"](noise + [[0.0], [0.0], [0.0], [4.0]]) > 1.5


@pytest.mark.thorough
def test_lynxes_and_hares_are_fitted_as_by_others(monkeypatch):
    least_squares = optional("scipy.optimize").least_squares
    solve_ivp = optional("scipy.integrate").solve_ivp
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = runpy.run_path(str(SCRIPTS / "predator_prey.py"))

    def residuals(logs):
        rates, years = np.exp(logs), names["YEARS"]

        def change(t, y):
            hares, lynxes = y
            gains = rates[0] - rates[1] * lynxes, rates[3] * hares - rates[2]
            return hares * gains[0], lynxes * gains[1]

        found = solve_ivp(change, years[[0, -1]], rates[4:], t_eval=years, rtol=1e-9, atol=1e-9)
        return np.log(found.y.T / names["PELTS"]).ravel()

    theirs = least_squares(residuals, names["first_guess"](), x_scale="jac")
    with tg.use_backend("native"):
        ours = names["fit"](tg.compile(tg.value_and_grad(names["loss"])), 100)
        spread = names["covariance"](ours.x)
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-4)
    assert ours.fun == pytest.approx(theirs.cost, rel=1e-6)
    variance = 2 * theirs.cost / (names["PELTS"].size - 6)
    np.testing.assert_allclose(
        spread, variance * np.linalg.inv(theirs.jac.T @ theirs.jac), rtol=0.01, atol=1e-5
    )
    # The deviations of Carpenter's posterior.
    for found, known, deviation in zip(
        np.exp(ours.x), names["STAN"].values(), (0.06, 0.004, 0.09, 0.004), strict=False
    ):
        assert abs(found - known) < deviation


# ------------------------------------------------------------------ networks that read in a loop


@pytest.fixture
def reader(monkeypatch):
    """The functions of an example, a model of it for 5 letters, and passages to read."""
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def reader(name: str, gates: int):
        names, rng = runpy.run_path(str(SCRIPTS / f"{name}.py")), np.random.default_rng(4)
        units = names["UNITS"]
        shapes = {"Wx": (5, gates * units), "Wh": (units, gates * units), "b": (gates * units,)}
        model = names["parameters"](rng, **shapes, Wy=(units, 5), c=(5,))
        return names, model, rng.integers(5, size=(3, 9))

    return reader


def test_a_scan_reads_as_the_loop_in_python(reader):
    names, model, passages = reader("rnn", 1)
    found = []
    for scan in (False, True):
        tg.zero_grad(vars(model).values())
        bits = names["mean_bits"](model, passages, scan=scan)
        with tg.use_backend("native"):
            bits.backward()
        found.append([bits.item(), *(p.grad.copy() for p in vars(model).values())])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_the_lstm_is_the_textbooks(reader):
    """The gates of Hochreiter and Schmidhuber (1997) and Gers et al. (2000), in NumPy."""
    names, model, passages = reader("lstm", 4)
    weights = {name: p.numpy().astype(float) for name, p in vars(model).items()}
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    hidden = kept = np.zeros((len(passages), names["UNITS"]))
    (said, memory), scores = names["read"](model, passages)
    for letters, score in zip(passages.T, scores.numpy(), strict=True):
        gates = weights["Wx"][letters] + hidden @ weights["Wh"] + weights["b"]
        i, f, o, g = np.split(gates, 4, axis=1)
        kept = sigmoid(f + 1) * kept + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(kept)
        expected = hidden @ weights["Wy"] + weights["c"]
        np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(said.numpy(), hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(memory.numpy(), kept, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ in processes of their own


@pytest.mark.thorough  # what it registers is there for as long as its process lives
def test_script_that_registers_an_operation(tmp_path):
    script = SCRIPTS / f"{REGISTERS}.py"
    module = "-m", f"examples.{REGISTERS}"
    picture = tmp_path / f"{REGISTERS}.png"
    compiled = run(*module, "--quick", "--backend", "native", "--compile", cwd=tmp_path)
    assert re.search("^engine +native; .+ compiled once$", compiled, re.MULTILINE)
    assert_picture(picture)
    drawn = picture.read_bytes()
    assert_explains(run(script, "--help", cwd=tmp_path))
    eager = run(script, "--quick", "--backend", "native", cwd=tmp_path)
    assert re.search("^engine +native", eager, re.MULTILINE)
    assert said(compiled) == said(eager)
    assert picture.read_bytes() == drawn


@pytest.mark.thorough  # as a module test_script_that_registers_an_operation starts
@pytest.mark.parametrize(
    ("command", "backend"),
    [
        pytest.param(
            (SCRIPTS / "linear_regression.py",),
            "tensorflow" if TENSORFLOW else "native",
            id="script",
        ),
        pytest.param(("-m", "examples.linear_regression"), "native", id="module"),
    ],
)
def test_both_ways_of_starting(command, backend, tmp_path):
    out = run(*command, "--quick", "--backend", backend, "--no-compile", cwd=tmp_path)
    assert_picture(tmp_path / "linear_regression.png")
    assert re.search(f"^engine +{backend}", out, re.MULTILINE)


@pytest.mark.skipif(TENSORFLOW, reason="TensorFlow is here")
def test_without_tensorflow_an_example_runs_natively_and_says_so(run_here):
    out = run_here("linear_regression", "--quick", "--backend", "tensorflow")
    assert re.search(r"^engine +native \(TensorFlow is not installed\.", out, re.MULTILINE)


@pytest.mark.parametrize("missing", thinned(["matplotlib", "sklearn", "tqdm"], 3))
def test_a_missing_extra_is_one_clear_line(missing, tmp_path):
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError(name={missing!r})")
    out = run(ROOT / "examples" / "digits.py", "--quick", cwd=tmp_path, status=1)
    assert f"needs {missing}" in out
    assert 'pip install ".[examples]"' in out
    assert "Traceback" not in out
    assert "training" not in out  # said before any work is done

"""What every test starts from and leaves behind: nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections import Counter, deque
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import auto, choice
from tapegraph.engines import backend as chosen_backend
from tapegraph.recording import node, recorder, scopes, watchers

# Below these folders every test hangs on a version: these try functions of NumPy's, SciPy's and
# TensorFlow's, and how things are typed, exported, saved and installed. How the library
# differentiates and compiles is Python of its own.
VERSIONS = {"arrays", "commands", "data", "export", "hips", "ops", "random", "recording"}
VERSIONS |= {"saving", "seeing", "tensors", "testing"}
# Below these, on how Python runs what the library writes: steps and loops, called record by record.
RECORDS = {"compiling", "engines", "loops", "tree"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="every layout and every case by itself, and thousands of random programs; "
        "for a release",
    )
    parser.addoption(
        "--sample",
        type=int,
        default=1,
        metavar="N",
        help="one in N of the tests, but all of each operation",
    )


@pytest.hookimpl(tryfirst=True)  # before ``-m`` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what hangs on a version; leave out what is for ``--thorough`` alone."""
    for item in items:
        if item.path.parent.name in VERSIONS:
            item.add_marker("versions")
        if item.path.parent.name in RECORDS:
            item.add_marker("records")
    now, every, met = items, config.getoption("sample"), Counter()
    if not config.getoption("thorough"):
        now = [i for i in now if not i.get_closest_marker("thorough") and is_sampled(i, met)]
    now = [i for n, i in enumerate(now) if n % every == 0 or "op" in i.fixturenames]
    config.hook.pytest_deselected(items=list(set(items) - set(now)))
    items[:] = now
    gc.freeze()  # what is imported and collected lives to the end


def is_sampled(item: pytest.Item, met: Counter) -> bool:
    """Whether an item is in the sample that ``one_in(every, of=None, start=0)`` asks for.

    Of the items of the test, or of those among them with the parameter ``of``, it has one in so
    many, the first after ``start`` others.
    """
    mark = item.get_closest_marker("one_in")
    of = mark and mark.kwargs.get("of")
    if not mark or (of and of not in [x for x in item.callspec.params.values() if type(x) is str]):
        return True
    met[item.function] += 1
    return (met[item.function] - 1) % mark.args[0] == mark.kwargs.get("start", 0)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Where pytest-xdist is installed, run one process per core unless ``-n`` says how many.

    Four at most, for each holds a TensorFlow. An idle process takes over another's tests.
    """
    option = config.option
    is_worker = hasattr(config, "workerinput")
    if is_worker or option.usepdb or option.collectonly or not hasattr(option, "numprocesses"):
        return
    if option.numprocesses is None:
        usable = getattr(os, "sched_getaffinity", None)  # Linux; elsewhere all cores
        option.numprocesses = min(len(usable(0)) if usable else os.cpu_count() or 1, 4)
        option.dist = "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    """Where processes share the cores, leave each one thread for products of matrices.

    Threads of OpenBLAS, OpenMP and TensorFlow wait for each other in busy loops, which is slower by
    far than one alone. And the interpreters that tests start find compiled what the first of them
    imported. The collector looks for garbage less often than by itself: recording, compiling and
    TensorFlow's tracing make many objects, and it took a tenth of the time.
    """
    gc.set_threshold(20_000)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # No deadlines, which say how busy the machine is; the same draws each time but for a release.
    derandomize = not config.getoption("thorough")
    hypothesis.settings.register_profile("here", deadline=None, derandomize=derandomize)
    hypothesis.settings.load_profile("here")
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


@pytest.fixture(scope="session")
def thorough(request) -> bool:
    """Whether to try everything, as before a release."""
    return request.config.getoption("--thorough")


@pytest.fixture(autouse=True)
def sealed(monkeypatch):
    """Give each test an empty tape, the default engine, and NumPy as it is at the start."""
    np.random.seed(0)  # noqa: NPY002 - check_grads draws its directions from it
    monkeypatch.setattr(chosen_backend, "_warned", set())  # a cause is warned of once a test
    monkeypatch.setattr(auto, "BACKWARDS", auto.Backwards())  # what `auto` decided is forgotten
    monkeypatch.setattr(node, "_default_dtype", np.dtype(np.float64))
    # A step is not to import TensorFlow because the tests before have run for long.
    monkeypatch.setattr(choice, "PROCESS", choice.Ledger())
    monkeypatch.setattr(choice, "OVERRUNS", deque(maxlen=choice.OVERRUNS.maxlen))
    fresh = {
        scopes.RECORDER: recorder.Recorder(),
        scopes.RECORDING.entered: (),
        scopes.BACKEND.entered: (),
        chosen_backend._chosen: None,
        chosen_backend.LAST: None,
    }
    tokens = [(variable, variable.set(value)) for variable, value in fresh.items()]
    kernels = [*watchers.OTHERS]
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        yield
    for variable, token in tokens:
        variable.reset(token)
    watchers.OTHERS[:] = kernels


@pytest.fixture(scope="module", autouse=True)
def older_objects_hidden():
    """Hide what lives from the collector, once a file: beside TensorFlow it has half a million."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def few_objects():
    """Hide what lives from the collector, for a test that calls it time and again."""
    gc.freeze()


@pytest.fixture(params=["native", "tensorflow"])
def backend(request):
    """Run the test once with each engine that is installed."""
    if request.param == "tensorflow":
        pytest.importorskip("tensorflow")
    tg.set_backend(request.param)
    return request.param


@pytest.fixture(params=["native", "tensorflow"])
def engine(request):
    """Run the test once within each engine that is installed."""
    if request.param == "tensorflow":
        pytest.importorskip("tensorflow")
    with tg.use_backend(request.param):
        yield request.param


@pytest.fixture(params=["eager", "compiled"])
def made(request):
    """Run the test once with steps as they are written, and once with compiled ones."""
    return tg.compile if request.param == "compiled" else lambda step: step


@pytest.fixture
def graph_engine(monkeypatch):
    """TensorFlow alone, falling back being an error, with an empty cache of graphs."""
    limit = tg.lowering.cache_info().limit
    tg.lowering.cache_clear()
    tg.set_backend("tensorflow")
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    yield tg.lowering
    tg.lowering.cache_clear()
    tg.lowering.set_cache_limit(limit)


@pytest.fixture
def run_python():
    """Run programs in a new interpreter, which may crash: ``run_python(code, NAME=value)``."""
    hidden = ("PYTHONPATH", "TAPEGRAPH_BACKEND", "TAPEGRAPH_STRICT")
    inherited = {k: v for k, v in os.environ.items() if k not in hidden}

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=Path(__file__).parent.parent,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **inherited, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run

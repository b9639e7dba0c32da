"""Falling back is whole, and said once: whatever fails in TensorFlow, the native sweep runs."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import auto, choice, registry
from tapegraph.engines.engine import Costs, EngineDeclined
from tapegraph.lowering import (
    LOWERINGS,
    Forked,
    MetNaN,
    NotLowered,
    Unavailable,
    cache_info,
    runtime,
)
from tapegraph.lowering import backward as graph
from tapegraph.lowering.rows import Row
from tests.quick import thinned

pytestmark = pytest.mark.versions

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)
INSTALL = 'pip install "tensorflow>=2.18"'


def example() -> tuple[list[tg.Tensor], tg.Tensor]:
    """Two leaves that have gradients already, so that what is half-written shows."""
    rng = np.random.default_rng(0)
    leaves = [tg.param(rng.normal(size=(3, 2))), tg.param(rng.normal(size=2))]
    with tg.use_backend("native"):
        tg.sum(leaves[0] * leaves[1]).backward()
    return leaves, tg.mean(tg.sin(leaves[0]) * leaves[1])


def native_gradients() -> list[np.ndarray]:
    leaves, y = example()
    with tg.use_backend("native"):
        y.backward()
    return [leaf.grad for leaf in leaves]


def eager(monkeypatch: pytest.MonkeyPatch, make: Callable[[], tg.Tensor]) -> None:
    """Let `auto` try TensorFlow at the next backward of a structure."""
    monkeypatch.setattr(choice, "EARLIEST", 0.0)
    monkeypatch.setattr(registry.engine("tensorflow"), "costs", Costs())
    with tg.use_backend("auto"):
        for _ in range(choice.TRIALS + 1):
            make().backward()


@contextmanager
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Collect warnings, and check that the log says the same at the same level."""
    found: list[str] = []
    caplog.clear()
    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        yield found
    found += [str(w.message) for w in caught]
    assert all(w.category is RuntimeWarning and w.filename == __file__ for w in caught)
    logged = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    assert logged == [("tapegraph", "WARNING", text) for text in found]


# ------------------------------------------------------------------ failures, one by one


class Injected(Exception):
    pass


def fail(*args: Any, **kwargs: Any) -> Any:
    raise Injected("out of luck")


def failing_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_module", None)
    monkeypatch.setattr(runtime, "_reason", None)
    monkeypatch.setattr(runtime, "_found", True)  # where it is not installed, too
    monkeypatch.setattr(runtime, "importlib", SimpleNamespace(import_module=fail))


def failing_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOWERINGS, "sin", Row(fail))


def failing_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.tensorflow().GradientTape, "gradient", fail)


def failing_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.tensorflow(), "function", fail)


def failing_feeding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "to_tensorflow", fail)


def failing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = runtime.tensorflow()

    def never_finite(out: Any, x: Any) -> Any:
        return tf.raw_ops.CheckNumerics(tensor=x / tf.zeros_like(x), message="out of luck")

    monkeypatch.setitem(LOWERINGS, "sin", Row(never_finite))


def failing_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def second_time_unlucky(tensor: Any) -> Any:
        fetched.append(tensor)
        return np.asarray(tensor) if len(fetched) % 2 else fail()

    monkeypatch.setattr(graph, "to_numpy", second_time_unlucky)


# What is broken: (how, what the reason says).
FAILURES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "importing": (failing_import, "TensorFlow does not import: Injected: out of luck"),
    "lowering": (failing_lowering, "TensorFlow failed: Injected: out of luck"),
    "tracing": (failing_tracing, "TensorFlow failed: Injected: out of luck"),
    "compiling": (failing_compiling, "TensorFlow failed: Injected: out of luck"),
    "feeding": (failing_feeding, "TensorFlow failed: Injected: out of luck"),
    "running": (failing_running, "TensorFlow failed: InvalidArgumentError: "),
    "fetching": (failing_fetching, "TensorFlow failed: Injected: out of luck"),
}


@pytest.fixture(params=FAILURES)
def broken(request, monkeypatch, graph_engine) -> str:
    """Break TensorFlow in one place; the backend is "tensorflow"."""
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    if request.param != "importing" and importlib.util.find_spec("tensorflow") is None:
        pytest.skip("needs TensorFlow")
    break_it, reason = FAILURES[request.param]
    break_it(monkeypatch)
    return reason


def test_gradients_are_the_native_ones_and_the_cause_is_named_once(broken, caplog):
    wanted = native_gradients()
    for attempt in range(3):
        leaves, y = example()
        with heard(caplog) as said:
            y.backward()
        for leaf, grad in zip(leaves, wanted, strict=True):
            np.testing.assert_array_equal(leaf.grad, grad)
        report = tg.last_backward()
        assert (report.backend, report.cached, report.entries) == ("native", False, 5)
        assert report.compile_seconds == 0.0 < report.run_seconds
        assert report.reason.startswith(broken)
        if attempt == 0:
            (message,) = said
            assert message == f"backward ran in the native engine: {report.reason}"
        else:
            assert said == []


def test_strict_makes_it_an_error_and_writes_nothing(broken, monkeypatch, caplog):
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    leaves, y = example()
    before, report = [leaf.grad.copy() for leaf in leaves], tg.last_backward()
    for _ in range(2):
        with heard(caplog) as said, pytest.raises(RuntimeError) as caught:
            y.backward()
        assert broken in str(caught.value)
        assert "TAPEGRAPH_STRICT is set" in str(caught.value)
        assert isinstance(caught.value.__cause__, Exception)
        assert said == []
    for leaf, grad in zip(leaves, before, strict=True):
        np.testing.assert_array_equal(leaf.grad, grad)
    assert tg.last_backward() is report


@pytest.mark.parametrize("value", ["", "0"])
def test_strict_is_off_when_empty_or_zero(broken, monkeypatch, caplog, value):
    monkeypatch.setenv("TAPEGRAPH_STRICT", value)
    with heard(caplog) as said:
        example()[1].backward()
    assert len(said) == 1


@needs_tensorflow
def test_each_cause_is_named(graph_engine, monkeypatch, caplog):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    with heard(caplog) as said:
        for break_it in (failing_lowering, failing_running, failing_lowering):
            with monkeypatch.context() as patch:
                break_it(patch)
                example()[1].backward()
    assert len(said) == 2


@needs_tensorflow
def test_once_it_works_again_tensorflow_runs(graph_engine, monkeypatch, caplog):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    with heard(caplog), monkeypatch.context() as patch:
        failing_lowering(patch)
        example()[1].backward()
    leaves, y = example()
    y.backward()
    assert tg.last_backward().backend == "tensorflow"
    for leaf, grad in zip(leaves, native_gradients(), strict=True):
        np.testing.assert_allclose(leaf.grad, grad, rtol=1e-12)


@needs_tensorflow
def test_auto_names_a_failure_too(graph_engine, monkeypatch, caplog):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    eager(monkeypatch, lambda: example()[1])
    failing_lowering(monkeypatch)
    with heard(caplog) as said, tg.use_backend("auto"):
        example()[1].backward()
    assert len(said) == 1
    assert tg.last_backward().reason == "TensorFlow failed: Injected: out of luck"


@needs_tensorflow
def test_auto_does_not_try_again_what_failed(graph_engine, monkeypatch):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    tries = []

    def failing(*args):
        tries.append(args)
        raise RuntimeError("out of luck")

    monkeypatch.setattr(graph, "BackwardGraph", failing)
    x = tg.param([1.0, 2.0])
    eager(monkeypatch, lambda: tg.sum(tg.sin(x)))
    with tg.use_backend("auto"):
        with pytest.warns(RuntimeWarning, match="out of luck"):
            tg.sum(tg.sin(x)).backward()
        tg.sum(tg.sin(x)).backward()
    assert len(tries) == 1
    assert tg.last_backward().reason == "TensorFlow failed: RuntimeError: out of luck"
    assert "in failing" in tg.last_backward().error
    np.testing.assert_allclose(x.grad, (choice.TRIALS + 3) * np.cos([1.0, 2.0]), rtol=1e-12)


@needs_tensorflow
def test_auto_tries_again_when_memory_was_short(graph_engine, monkeypatch):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    x = tg.param([1.0, 2.0])
    eager(monkeypatch, lambda: tg.sum(tg.sin(x)))

    def full(*args):
        raise runtime.tensorflow().errors.ResourceExhaustedError(None, None, "out of memory")

    with tg.use_backend("auto"):
        with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="out of memory"):
            patch.setattr(graph, "BackwardGraph", full)
            tg.sum(tg.sin(x)).backward()
        assert tg.last_backward().backend == "native"
        tg.sum(tg.sin(x)).backward()
    assert (tg.last_backward().backend, tg.last_backward().error) == ("tensorflow", None)
    runs = choice.TRIALS + 3
    np.testing.assert_allclose(x.grad, runs * np.cos([1.0, 2.0]), rtol=1e-12)


def test_the_report_keeps_the_traceback_of_what_failed(broken, caplog):
    with heard(caplog):
        example()[1].backward()
    error = tg.last_backward().error
    if "does not import" in broken:  # the engine declines, and that is no bug
        assert error is None
    else:
        assert error.startswith("Traceback (most recent call last):")
        assert "out of luck" in error


@pytest.mark.parametrize(
    "kind", [NotLowered, MetNaN, Unavailable, Forked], ids=lambda kind: kind.__name__
)
def test_what_tensorflow_declines_with_is_the_cores_exception(kind):
    assert issubclass(kind, EngineDeclined)
    assert kind("why").expected is (kind is not Forked)
    assert str(kind("why")) == "why"


def test_a_warning_that_is_an_error_writes_nothing(monkeypatch):
    monkeypatch.setattr(runtime, "_reason", "gone")
    leaves, y = example()
    before = [leaf.grad.copy() for leaf in leaves]
    with tg.use_backend("tensorflow"), pytest.raises(RuntimeWarning, match="gone"):
        y.backward()
    for leaf, grad in zip(leaves, before, strict=True):
        np.testing.assert_array_equal(leaf.grad, grad)


# ------------------------------------------------------------------ operations without lowering

IMAGE = np.arange(16.0).reshape(1, 1, 4, 4)
GAPS = {
    "layer_norm": lambda x: tg.layer_norm(x, np.ones(4), np.zeros(4)),
    "conv2d": lambda x: tg.conv2d(x, np.ones((1, 1, 2, 2))),
    "max_pool2d": lambda x: tg.max_pool2d(x, 2),
    "avg_pool2d": lambda x: tg.avg_pool2d(x, 2),
}


@pytest.fixture
def with_tensorflow(monkeypatch):
    """Let the policy believe that TensorFlow is there; these tapes never get to it."""
    monkeypatch.setattr(runtime, "_module", runtime._module or SimpleNamespace())
    monkeypatch.setattr(runtime, "_reason", None)
    monkeypatch.setattr(runtime, "_found", True)


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("backend", ["auto", "tensorflow"])
def test_an_unlowered_operation_runs_the_whole_tape_natively(
    name, backend, with_tensorflow, caplog
):
    for attempt in range(2):
        x = tg.param(IMAGE)
        with heard(caplog) as said, tg.use_backend(backend):
            tg.sum(GAPS[name](x * 2.0)).backward()
        assert tg.last_backward().backend == "native"
        assert tg.last_backward().reason.startswith(f"{name} ")
        assert x.grad.shape == x.shape
        assert len(said) == (backend == "tensorflow" and attempt == 0)
        assert all(f": {name} " in message for message in said)


def test_nobody_looks_for_signal_handlers_where_an_engine_was_to_decline(
    with_tensorflow, monkeypatch
):
    """An expected refusal is no failure: nothing is raised and no handler could have raised it."""
    monkeypatch.setattr(signal, "getsignal", lambda number: pytest.fail("it was looked for"))
    monkeypatch.setattr(auto, "BACKWARDS", auto.Backwards())
    x = tg.param(IMAGE)
    with tg.use_backend("auto"):
        for refused in (None, runtime.NOT_INSTALLED):
            monkeypatch.setattr(runtime, "_reason", refused)
            step = tg.compile(lambda: tg.sum(x * 2.0))
            for _ in range(4):
                tg.sum(tg.avg_pool2d(x * 2.0, 2)).backward()
                step()


@pytest.mark.parametrize("name", GAPS)
def test_strict_accepts_an_unlowered_operation_under_auto_alone(name, with_tensorflow, monkeypatch):
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    x = tg.param(IMAGE)
    y = GAPS[name](x)
    with tg.use_backend("tensorflow"), pytest.raises(RuntimeError, match=f"backward: {name} "):
        y.backward()
    assert x.grad is None
    with tg.use_backend("auto"):
        y.backward()
    assert x.grad is not None


# ------------------------------------------------------------------ the report


@needs_tensorflow
def test_report_of_the_graph_engine(graph_engine):
    _, y = example()
    for cached in (False, True):
        y.backward()
        report = tg.last_backward()
        assert (report.backend, report.reason, report.entries) == ("tensorflow", None, 5)
        assert report.cached is cached
        assert (report.compile_seconds > 0.0) is not cached
        assert report.run_seconds > 0.0


def test_the_native_engine_never_asks_for_tensorflow(monkeypatch):
    failing_import(monkeypatch)
    before = cache_info()
    leaves, y = example()
    with tg.use_backend("native"):
        y.backward()
    assert tg.last_backward().reason == "the backend was native"
    assert (runtime._reason, cache_info()) == (None, before)


# ------------------------------------------------------------------ not there, broken, too old

# Runs backward twice under every backend; prints reports, warnings and gradients as JSON.
PROBE = """
    import json, warnings
    import tapegraph as tg

    result = []
    for backend in ("auto", "tensorflow"):
        for attempt in range(2):
            x = tg.param([1.0, 2.0])
            with warnings.catch_warnings(record=True) as caught, tg.use_backend(backend):
                warnings.simplefilter("always")
                try:
                    tg.sum(x * x).backward()
                    error = None
                except RuntimeError as failure:
                    error = str(failure)
            report = tg.last_backward()
            result.append({
                "backend": backend,
                "ran": report and report.backend,
                "reason": report and report.reason,
                "warnings": [str(w.message) for w in caught],
                "error": error,
                "grad": None if x.grad is None else x.grad.tolist(),
            })
    print(json.dumps(result))
"""


def probe(run_python: Any, prelude: str = "", **environment: str) -> list[dict[str, Any]]:
    done = run_python(prelude + PROBE, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stub(folder: Any, source: str) -> dict[str, str]:
    """Put a package called tensorflow first on the path of a new interpreter."""
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow" / "__init__.py").write_text(source)
    return {"PYTHONPATH": str(folder)}


NOT_INSTALLED = {
    "absent": """
    import sys
    sys.modules["tensorflow"] = None
""",
    "blocked": """
    import sys
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name == "tensorflow":
                raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
    sys.meta_path.insert(0, Blocker())
""",
}


@pytest.mark.parametrize("how", NOT_INSTALLED)
@pytest.mark.one_in(2)
def test_not_installed_is_one_warning_that_says_how_to_install_it(how, run_python):
    auto, again, asked, asked_again = probe(run_python, NOT_INSTALLED[how])
    for run in (auto, again, asked, asked_again):
        assert (run["ran"], run["grad"], run["error"]) == ("native", [2.0, 4.0], None)
    assert auto["warnings"] == again["warnings"] == asked_again["warnings"] == []
    (message,) = asked["warnings"]
    assert message.startswith("backward ran in the native engine: TensorFlow is not installed.")
    assert INSTALL in message
    assert INSTALL in asked["reason"]


def test_auto_says_at_once_that_tensorflow_is_blocked(run_python):
    auto, *_ = probe(run_python, NOT_INSTALLED["absent"])
    assert auto["reason"].startswith("TensorFlow is not installed.")


@pytest.mark.parametrize("how", NOT_INSTALLED)
@pytest.mark.one_in(2, start=1)
def test_not_installed_is_an_error_under_strict_when_asked_for(how, run_python):
    runs = probe(run_python, NOT_INSTALLED[how], TAPEGRAPH_STRICT="1")
    auto, _, asked, asked_again = runs
    assert (auto["ran"], auto["grad"], auto["error"]) == ("native", [2.0, 4.0], None)
    for run in (asked, asked_again):
        assert run["grad"] is None
        assert INSTALL in run["error"]
        assert "TAPEGRAPH_STRICT is set" in run["error"]


BROKEN = {
    "ImportError": 'raise ImportError("DLL load failed")',
    "AttributeError": "import sys; sys.no_such_thing",
    "ValueError": 'raise ValueError("numpy.dtype size changed")',
    "TypeError": 'raise TypeError("Descriptors cannot be created directly")',
    "ModuleNotFoundError": "import no_such_dependency",
    "old": '__version__ = "2.3.0"',
    "new": '__version__ = "9.0.0"',
    "empty": "",
    "SystemExit": "raise SystemExit(3)",
    "RuntimeError": """
__version__ = "2.20.0"
def __getattr__(name):
    raise RuntimeError(f"lazy {name}")
""",
}


def reason_of(name: str) -> str:
    if name == "old":
        first = ".".join(map(str, runtime.MINIMUM))
        return (
            f"TensorFlow 2.3.0 is too old: {first} or later is needed. Install it with: {INSTALL}."
        )
    if name == "new":
        return f"TensorFlow 9.0.0 has no {runtime.NEEDED[0]}, which is needed. "
    kind = "AttributeError" if name == "empty" else name
    return f"TensorFlow does not import: {kind}: "


# One of the errors that importing may raise; the others with --thorough.
ALIKE = {"AttributeError", "ValueError", "TypeError", "ModuleNotFoundError"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.thorough] if n in ALIKE else []) for n in BROKEN],
)
@pytest.mark.one_in(2)
def test_a_broken_tensorflow_leaves_tapegraph_working(name, run_python, tmp_path):
    runs = probe(run_python, **stub(tmp_path, BROKEN[name]))
    for run in runs:
        assert (run["ran"], run["grad"], run["error"]) == ("native", [2.0, 4.0], None)
    asked, asked_again = runs[2:]
    assert asked["reason"].startswith(reason_of(name))
    assert asked["warnings"] == [f"backward ran in the native engine: {asked['reason']}"]
    assert asked_again["warnings"] == []
    assert asked_again["reason"] == asked["reason"]


@pytest.mark.parametrize("name", thinned(BROKEN, 3))
@pytest.mark.one_in(2, start=1)
def test_info_says_why_a_broken_tensorflow_is_not_used(name, run_python, tmp_path):
    program = "from tapegraph.__main__ import main; main(['info', '--load'])"
    done = run_python(program, **stub(tmp_path, BROKEN[name]))
    assert reason_of(name) in done.stdout
    assert "engine in force: native" in done.stdout


# ------------------------------------------------------------------ fresh processes


def test_importing_creating_and_recording_leave_tensorflow_out(run_python):
    program = """
        import sys
        import tapegraph as tg

        x = tg.param([[1.0, 2.0]])
        y = tg.softmax_crossentropy(tg.tanh(x @ x.T + x), [1])
        str(tg.tape()), repr(y), tg.get_backend(), tg.lowering.cache_info(), tg.last_backward()
        with tg.use_backend("native"):
            y.backward()
        tg.SGD([x], 0.1).step()
        print([name for name in sys.modules if name.partition(".")[0] == "tensorflow"])
    """
    assert run_python(program).stdout.strip() == "[]"


FORK = """
    import json, os, warnings
    import tapegraph as tg

    def gradient():
        x = tg.param([1.0, 2.0])
        tg.sum(x * x).backward()
        return x.grad.tolist()

    tg.set_backend("tensorflow")
    assert gradient() == [2.0, 4.0]
    assert tg.last_backward().backend == "tensorflow"
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # fork() beside threads
    for backend in ("auto", "tensorflow"):
        tg.set_backend(backend)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result, error = [], None
                try:
                    result = [gradient() for _ in range(3)]
                except RuntimeError as failure:
                    error = str(failure)
            report = tg.last_backward()
            os.write(writer, json.dumps({
                "grads": result,
                "error": error,
                "backend": report.backend,
                "reason": report.reason,
                "warnings": [str(w.message) for w in caught],
            }).encode())
            os._exit(0)
        os.close(writer)
        print(os.read(reader, 1 << 16).decode())
        assert os.waitpid(child, 0)[1] == 0
        tg.set_backend("tensorflow")
        assert gradient() == [2.0, 4.0]
        assert tg.last_backward().backend == "tensorflow"  # the parent goes on as before
"""


@needs_tensorflow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_runs_natively_with_one_warning(capsys):
    with warnings.catch_warnings():
        exec(textwrap.dedent(FORK), {})
    children = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(children) == 2  # under auto, and under tensorflow
    for child in children:
        assert child["grads"] == [[2.0, 4.0]] * 3
        assert (child["backend"], child["error"]) == ("native", None)
        reason = "this process was forked from one that had used TensorFlow"
        assert child["reason"] == reason
        assert child["warnings"] == [f"backward ran in the native engine: {reason}"]

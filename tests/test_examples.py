"""Every example runs, both ways, saves its picture, and reaches what it promises."""

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

for extra in ("matplotlib", "sklearn", "tqdm"):
    pytest.importorskip(extra)

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("[!_]*.py"))
# No graph node for conv2d or for SciPy's function; scalars have an engine of their own.
NATIVE = {"cnn_digits", "defop_scipy", "moons"}
# What an example measures: the first figure of these lines.
MEASURED = re.compile(r"^ *(?:accuracy|test|overlap|found|mse) +([\d.]+)", re.MULTILINE)

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)


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


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Return what `--quick` prints and the picture it saves, by name and engine, run once."""

    @functools.cache
    def quick(name: str, backend: str) -> tuple[str, Path]:
        folder = tmp_path_factory.mktemp(name)
        script = ROOT / "examples" / f"{name}.py"
        return run(script, "--quick", "--backend", backend, cwd=folder), folder / f"{name}.png"

    return quick


def figures(out: str) -> list[float]:
    found = [float(figure) for figure in MEASURED.findall(out)]
    assert found, out
    return found


def assert_picture(path: Path) -> None:
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", EXAMPLES)
def test_script_runs_and_saves_its_picture(name, quick):
    out, picture = quick(name, "native")
    assert_picture(picture)
    assert picture.name in out
    assert name == "moons" or re.search("^engine +native", out, re.MULTILINE)


@needs_tensorflow
@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in NATIVE | {"verify_gradients"}])
def test_engines_train_alike(name, quick):
    by_graph, _ = quick(name, "tensorflow")
    assert re.search("^engine +tensorflow$", by_graph, re.MULTILINE)
    assert re.search(r"^cache +\d+ held, [1-4] compiled, [1-9]\d+ found", by_graph, re.MULTILINE)
    by_sweep, _ = quick(name, "native")
    assert figures(by_graph) == pytest.approx(figures(by_sweep), rel=0.02)


@pytest.mark.parametrize("backend", ["auto", "tensorflow"])
def test_convolution_says_that_it_runs_natively(backend, quick):
    out, _ = quick("cnn_digits", backend)
    assert re.search(r"^engine +native \(conv2d ", out, re.MULTILINE)
    assert ("RuntimeWarning" in out) == (backend == "tensorflow")


@pytest.mark.parametrize("name", EXAMPLES)
def test_module_explains_itself(name, tmp_path):
    out = run("-m", f"examples.{name}", "--help", cwd=tmp_path)
    for option in ("--backend", "--seed", "--out", "--quick", "You learn"):
        assert option in out


@pytest.fixture(scope="module")
def digits_accuracy(tmp_path_factory):
    """Return the accuracy in percent of the whole digits example, by engine, run once."""

    @functools.cache
    def accuracy(backend: str) -> float:
        picture = tmp_path_factory.mktemp(backend) / "here.png"
        script = ROOT / "examples" / "digits.py"
        out = run(script, "--backend", backend, "--out", picture, cwd=picture.parent)
        assert re.search(rf"^engine +{backend}", out, re.MULTILINE)
        assert_picture(picture)
        return figures(out)[0]

    return accuracy


def test_digits_are_learned(digits_accuracy):
    assert digits_accuracy("native") >= 96


@needs_tensorflow
def test_digits_are_learned_alike_by_both_engines(digits_accuracy):
    assert abs(digits_accuracy("tensorflow") - digits_accuracy("native")) <= 0.5


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is here")
def test_without_tensorflow_an_example_runs_natively_and_says_so(quick):
    out, _ = quick("linear_regression", "tensorflow")
    assert re.search(r"^engine +native \(TensorFlow is not installed\.", out, re.MULTILINE)


@pytest.mark.parametrize("missing", ["matplotlib", "sklearn", "tqdm"])
def test_a_missing_extra_is_one_clear_line(missing, tmp_path):
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError(name={missing!r})")
    out = run(ROOT / "examples" / "digits.py", "--quick", cwd=tmp_path, status=1)
    assert f"needs {missing}" in out
    assert 'pip install "tapegraph[examples]"' in out
    assert "Traceback" not in out
    assert "training" not in out  # said before any work is done

"""Ten NumPy programs run on tensors unchanged: same values, and gradients that hold."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "numpy_programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
SCANNED = ["kalman_filter", "spring_mass"]  # with tg.scan in place of the loop too
LONG = ["spring_mass"]  # whose graph takes its time to compile


@pytest.fixture(params=PROGRAMS)
def module(request, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module(request.param)
    del sys.modules[request.param]


def sample(module):
    return module.inputs(np.random.default_rng(5))


def test_there_are_ten():
    assert len(PROGRAMS) == 10


@pytest.mark.parametrize("name", PROGRAMS)
def test_imports_numpy_alone(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    imported = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(n) for n in imported] == ["import numpy as np"]


def test_same_values_on_tensors(module):
    arrays = sample(module)
    expected = module.program(*arrays)
    got = module.program(*map(tg.param, arrays))
    assert type(got) is tg.Tensor
    np.testing.assert_allclose(got.data, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "backend",
    ["native", pytest.param("tensorflow", marks=pytest.mark.thorough)],  # they agree, see below
    indirect=True,
)
@pytest.mark.filterwarnings("ignore:backward ran in the native engine:RuntimeWarning")
def test_gradients_pass_finite_differences(module, backend):
    tg.testing.check_gradients(module.program, *sample(module), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [pytest.param(name, marks=[pytest.mark.thorough] * (name in LONG)) for name in PROGRAMS],
    indirect=True,
)
@pytest.mark.one_in(4)
def test_the_engines_agree(module):
    pytest.importorskip("tensorflow")
    report = tg.testing.check_parity(module.program, *sample(module))
    assert report.backend == "tensorflow", report.reason


def test_forward_mode_agrees(module):
    arrays = sample(module)
    rng = np.random.default_rng(1)
    tangents = tuple(rng.normal(size=a.shape) for a in arrays)
    _, slope = tg.jvp(module.program, arrays, tangents)
    leaves = [tg.param(a) for a in arrays]
    out = module.program(*leaves)
    seed = rng.normal(size=out.shape)
    with tg.use_backend("native"):
        out.backward(seed)
    reverse = sum(
        np.sum(x.grad * t) for x, t in zip(leaves, tangents, strict=True) if x.grad is not None
    )
    np.testing.assert_allclose(np.sum(seed * slope), reverse, rtol=1e-8)


def test_float32_stays_float32(module):
    arrays = [a.astype(np.float32) for a in sample(module)]
    expected = module.program(*arrays)
    got = module.program(*map(tg.param, arrays))
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got.data, expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize(
    "backend",
    ["native", pytest.param("tensorflow", marks=pytest.mark.thorough)],
    indirect=True,
)
@pytest.mark.parametrize("module", SCANNED, indirect=True)
def test_a_scan_is_the_loop(module, backend):
    """Its value and gradients are those of the loop in Python, and it is one entry."""
    scans = runpy.run_path(str(FOLDER / "_scans.py"))["SCANS"]
    assert sorted(scans) == SCANNED
    found, tapes = [], []
    for program in (module.program, functools.partial(scans[module.__name__], module)):
        leaves = [tg.param(a) for a in sample(module)]
        out = program(*leaves)
        tapes.append([entry.op for entry in tg.tape()])
        tg.sum(out).backward()
        found.append([out.numpy(), *(leaf.grad for leaf in leaves)])
    by_loop, by_scan = tapes
    assert by_scan.count("scan") == 1 and 4 * len(by_scan) < len(by_loop)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def run(*command: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.mark.thorough  # what each program gives is tried above
@pytest.mark.parametrize("how", [("-m", "examples.numpy_programs"), (str(FOLDER),)])
def test_the_table_is_printed_both_ways(how):
    """And the gradients of compiled programs are those of eager ones to the bit."""
    out = run(*how, "--backend", "native", "--compile")
    head, *rows = (line.split() for line in out.splitlines() if line)
    assert (head[0], head[-1]) == ("program", "compiled")
    names = sorted([*PROGRAMS, *(f"{name}:scan" for name in SCANNED)])
    assert [(row[0], row[-1]) for row in rows] == [(name, "0.0e+00") for name in names]


def test_explains_itself():
    out = run("-m", "examples.numpy_programs", "--help")
    for text in ("You learn", "--backend", "--compile", "--seed"):
        assert text in out

"""Ranks as processes, with MPI: two give what one gives, and none outlives the others."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optional import optional

optional("mpi4py", "mpi4py is not here")

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).with_name("mpiexec")  # that of the wheel
MPIEXEC = str(MPIEXEC) if MPIEXEC.exists() else shutil.which("mpiexec")
if MPIEXEC is None:
    pytest.skip("there is no mpiexec", allow_module_level=True)
TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

# Both ranks, and then each of them alone, train in all ways; rank 0 compares.
TRAINS = """
import sys

import numpy as np
from mpi4py import MPI

import tapegraph as tg

world = MPI.COMM_WORLD
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 6)), rng.normal(size=(20, 4))
W = rng.normal(size=(6, 4))
PLACES = [0, 13, 20]


def train(comm, compiled):
    w, b = tg.param(W + comm.rank, name="w"), tg.param(np.zeros(4), name="b")
    optimizer = tg.Adam([w, b], lr=0.05)
    parallel = tg.distributed.DataParallel(optimizer, comm, check_every=2)
    part = slice(*PLACES[comm.rank : comm.rank + 2]) if comm.size == 2 else slice(None)

    def step(x, y):
        loss = tg.mean((tg.tanh(x @ w) + b - y) ** 2)
        parallel.zero_grad()
        loss.backward()
        parallel.step(weight=len(x))
        return loss

    run = tg.compile(step) if compiled else step
    for _ in range(8):
        run(X[part], Y[part])
    if compiled and tg.get_backend() == "tensorflow":
        assert "ran in tensorflow" in run.explain(), run.explain()
    return np.concatenate([w.data.ravel(), b.data])


for engine in sys.argv[1:]:
    tg.set_backend(engine)
    for compiled in (False, True):
        one, two = train(MPI.COMM_SELF, compiled), train(world, compiled)
        other = np.empty_like(two) if world.rank else two.copy()
        world.Bcast(other)
        found = world.gather((abs(two - one).max(), np.array_equal(two, other)))
        for error, equal in found or ():  # lines of two ranks may run into each other
            print(f"{engine} {compiled} {error:.3g} {equal}", flush=True)
"""

# Rank 1 ends in the middle, while rank 0 waits for it.
ENDS = """
import os, signal, sys

import tapegraph as tg

w = tg.param([1.0, 2.0])
parallel = tg.distributed.DataParallel(tg.SGD([w], lr=0.1))
for step in range(1000):
    parallel.zero_grad()
    tg.sum(w * w).backward()
    if step == 3 and parallel.rank == 1:
        if sys.argv[1] == "raises":
            raise ValueError("rank 1 has met bad data")
        os.kill(os.getpid(), signal.SIGKILL)
    parallel.step()
print("went on", flush=True)
"""

# Shapes differ: refused on both ranks, and the job ends.
DIFFERS = """
import numpy as np
from mpi4py import MPI

import tapegraph as tg

w = tg.param(np.ones(2 + MPI.COMM_WORLD.rank), name="w")
tg.distributed.DataParallel(tg.SGD([w], lr=0.1))
print("went on", flush=True)
"""


def job(tmp_path, program, *arguments, timeout=60):
    """Run a program or a script on two ranks; return its status, what it printed, and errors."""
    script = program
    if isinstance(program, str):
        script = tmp_path / "script.py"
        script.write_text(program)
    command = [MPIEXEC, "-n", "2", sys.executable, str(script), *arguments]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TF_NUM_INTRAOP_THREADS": "1"}
    with subprocess.Popen(
        command,
        env=os.environ | settings,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            pytest.fail(f"the job did not end: {process.communicate()}")
        finally:  # a rank may outlive the others, and would wait for them in a busy loop
            if shutil.which("pkill"):
                subprocess.run(["pkill", "-KILL", "--session", str(process.pid)], check=False)
    return process.returncode, out, errors


def assert_alike(out, engines):
    lines = re.findall(r"^(\w+) (True|False) (\S+) (True|False)$", out, re.MULTILINE)
    assert len(lines) == 4 * len(engines), out
    for engine, _, error, equal in lines:
        assert float(error) <= 1e-12
        assert equal == "True" or engine == "tensorflow"


def test_two_ranks_are_one_with_the_whole_batch(tmp_path):
    status, out, errors = job(tmp_path, TRAINS, "native")
    assert status == 0, errors
    assert_alike(out, ["native"])


@pytest.mark.thorough
@pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not here")
def test_two_ranks_are_one_in_tensorflow(tmp_path):
    status, out, errors = job(tmp_path, TRAINS, "tensorflow", timeout=180)
    assert status == 0, errors
    assert_alike(out, ["tensorflow"])


@pytest.mark.parametrize(
    ("program", "how", "said"),
    [
        (ENDS, "raises", "Traceback .*ValueError: rank 1 has met bad data"),
        (ENDS, "is killed", "KILLED BY SIGNAL: 9|EXIT CODE: 9"),
        (DIFFERS, "differs", r"parameter 'w' of shape \(3,\) and dtype float64 on rank 1"),
    ],
    ids=["raises", "is killed", "differs"],
)
def test_one_rank_ends_the_job(tmp_path, program, how, said):
    start = time.monotonic()
    status, out, errors = job(tmp_path, program, how)
    assert status != 0
    assert "went on" not in out
    assert re.search(said, errors + out, re.DOTALL), errors + out  # MPI's own words are in either
    assert time.monotonic() - start < 30


@pytest.mark.thorough
def test_the_example_is_one_rank_with_the_whole_batch(tmp_path):
    for package in ("matplotlib", "sklearn", "tqdm"):
        pytest.importorskip(package, reason="needs the extra examples")
    script = ROOT / "examples" / "data_parallel.py"
    status, out, errors = job(tmp_path, script, "--quick", "--backend", "native")
    assert status == 0, errors
    assert re.search(r"^ranks +2, .+ ms a step$", out, re.MULTILINE)
    assert float(re.search(r"^apart +(\S+),", out, re.MULTILINE)[1]) <= 1e-12
    assert float(re.search(r"^accuracy +([\d.]+)%", out, re.MULTILINE)[1]) > 90
    assert (tmp_path / "data_parallel.png").read_bytes()[:4] == b"\x89PNG"

"""Steps compiled under a strategy: workers take the steps of one process with the whole batch."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tests.distributed.ranks import on_ranks, results

ROOT = Path(__file__).parents[2]
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 5)), rng.normal(size=(12, 3))
W = rng.normal(size=(5, 3))
KINDS = {
    "momentum": lambda params: tg.SGD(params, 0.1, momentum=0.9),
    "adam": lambda params: tg.Adam(params, 0.05),
}


# ------------------------------------------------------------------ workers as processes

START = """
import sys

import numpy as np
import tensorflow as tf

import tapegraph as tg

tg.set_backend("tensorflow")
"""

TRAINS = (
    START
    + """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
number = int(sys.argv[1])
X = np.random.default_rng(0).normal(size=(20, 6))
Y = np.tanh(X @ np.ones((6, 4)))
MAKES = {
    "momentum": lambda params: tg.SGD(params, 0.1, momentum=0.9),
    "adam": lambda params: tg.Adam(params, 0.05),
}


def train(kind, options, masked=None):
    w = tg.param(np.full((6, 4), 0.1 * (1 + (number if options else 0))), name="w")
    b = tg.param(np.full(4, 0.5), name="b")
    optimizer = MAKES[kind]([w, b])

    @tg.compile(**options)
    def step(x, y, z):
        loss = tg.mean((tg.tanh(x @ w) - y) ** 2)
        loss += tg.mean((tg.where(z > 0, tg.sqrt(z * b), b) - 1.0) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    part = slice(number, None, 2) if options else slice(None)
    for i in range(10):
        z = np.abs(X[:, :4]) + 0.1
        if i == masked:
            z[1] = 0.0  # in the second worker's part: 0 * inf in its gradient
        step(X[part], Y[part], z[part])
    return np.concatenate([w.data.ravel(), b.data]), step.explain()


for kind in MAKES:
    for masked in (None, 5):
        one, _ = train(kind, {}, masked)
        two, said = train(kind, {"strategy": strategy}, masked)
        error = abs(one - two).max()
        assert np.isfinite(one).all() and error <= 1e-12, (kind, masked, error)
        assert "ran in tensorflow" in said, said
print("alike", flush=True)
"""
)


def cluster(tmp_path, program, timeout=60):
    """Run a program as two workers; return the status of each, and what it printed."""
    script = tmp_path / "script.py"
    script.write_text(program)
    with ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    settings = {"PYTHONPATH": str(ROOT), "TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    workers = []
    for number in range(2):
        task = {"type": "worker", "index": number}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        command = [sys.executable, str(script), str(number)]
        with (tmp_path / f"worker{number}.txt").open("w") as output:
            how = {"stdout": output, "stderr": subprocess.STDOUT}
            how["env"] = {**os.environ, **settings, "TF_CONFIG": config}
            workers.append(subprocess.Popen(command, **how))
    end = time.monotonic() + timeout
    try:
        for worker in workers:
            worker.wait(max(end - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        pytest.fail("the workers did not end: " + str(outputs(tmp_path)))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return [worker.returncode for worker in workers], outputs(tmp_path)


def outputs(tmp_path):
    return [(tmp_path / f"worker{number}.txt").read_text() for number in range(2)]


def test_two_workers_are_one_with_the_whole_batch(tmp_path):
    pytest.importorskip("tensorflow")
    statuses, out = cluster(tmp_path, TRAINS)
    assert statuses == [0, 0], out
    assert all("alike" in said for said in out), out

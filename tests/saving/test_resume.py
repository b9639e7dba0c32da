"""A run that is killed while it saves, and one that goes on in another process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tests.saving.test_checkpoints import SUFFIXES

# Both with --thorough: what is asked here hangs on how a file is replaced, not on what is in it.
ONE_OF_THEM = [pytest.param(SUFFIXES[0], marks=pytest.mark.thorough), *SUFFIXES[1:]]

ROOT = Path(__file__).parents[2]

SAVE_FOR_EVER = """
    import itertools, sys
    import numpy as np, tapegraph as tg
    for n in itertools.count():
        tg.save(sys.argv[1], {"w": np.full(200_000, n), "n": n, "b": {"x": np.full(3, n)}})
        print(n, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that none can catch")
@pytest.mark.parametrize("suffix", ONE_OF_THEM)
def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path, suffix, thorough):
    path = tmp_path / f"run.{suffix}"
    moments = random.Random(0)
    for _ in range(100 if thorough else 3):  # of either format
        running = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVE_FOR_EVER), path],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        with running:
            first = int(running.stdout.readline())
            time.sleep(moments.random() * 0.05)
            running.send_signal(signal.SIGKILL)
            printed = [first, *map(int, running.stdout.read().split())]
        assert running.returncode == -signal.SIGKILL
        saved = tg.load(path)
        assert saved["n"] in (printed[-1], printed[-1] + 1)
        for array in (saved["w"], saved["b"]["x"]):
            np.testing.assert_array_equal(array, saved["n"])
        left = [name for name in os.listdir(tmp_path) if name != path.name]
        assert all(name.startswith(".tapegraph-") and name.endswith(".tmp") for name in left)


# -- in another process --------------------------------------------------------------------------

TRAIN = """
    import sys
    from types import SimpleNamespace
    import numpy as np, tapegraph as tg
    from tapegraph.optim import schedules

    OPTIMIZERS = {
        "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        "Adam": {"amsgrad": True, "weight_decay": 0.01},
        "AdamW": {},
        "RMSprop": {"momentum": 0.9, "centered": True},
        "Adagrad": {"lr_decay": 0.1},
        "Lion": {"weight_decay": 0.1},
    }

    def run(kind, made, path, go_on, steps):
        tg.set_backend("native")
        rng = np.random.default_rng(0)
        layers = [
            SimpleNamespace(
                w=tg.param(rng.normal(size=(4, 4)).astype(dtype)), b=tg.param(np.zeros(4, dtype))
            )
            for dtype in (np.float64, np.float32)
        ]
        model = {"layers": layers, "mean": tg.tensor(np.zeros(4))}
        rate = schedules.warmup(3, schedules.cosine(0.05, steps=12))
        optimizer = getattr(tg, kind)(model, lr=rate, **OPTIMIZERS[kind])
        data = np.random.default_rng(1).normal(size=(16, 8, 4))
        tg.random.seed(5)
        start = 0
        if go_on:
            saved = tg.load(path, into={"model": model, "optimizer": optimizer})
            tg.random.set_state(saved["random"])
            start = saved["step"]

        def step(x):
            h = x
            for layer in layers:
                h = tg.dropout(tg.tanh(h @ layer.w + layer.b), 0.25)
            optimizer.zero_grad()
            loss = ((h - model["mean"]) ** 2).mean()
            loss.backward()
            tg.clip_grad_norm(model, 0.1)
            optimizer.step()
            with tg.no_grad():
                model["mean"].assign(0.9 * model["mean"] + 0.1 * h.mean(axis=0).astype("float64"))
            return loss

        step = tg.compile(step) if made == "compiled" else step
        for n in range(start, steps):
            step(data[n])
        tg.save(
            path,
            {
                "model": model,
                "optimizer": optimizer.state_dict(),
                "random": tg.random.get_state(),
                "step": steps,
            },
        )

    folder, suffix, go_on, steps, compiled = sys.argv[1:]
    for made, kinds in (("eager", OPTIMIZERS), ("compiled", compiled.split())):
        for kind in kinds:
            run(kind, made, f"{folder}/{kind}-{made}.{suffix}", go_on == "on", int(steps))
"""


def trained(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRAIN), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("suffix", ONE_OF_THEM)
def test_a_run_that_goes_on_in_a_new_process_is_the_same_to_the_bit(tmp_path, suffix, thorough):
    compiled = "SGD Adam" + " AdamW RMSprop Adagrad Lion" * thorough
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    trained(whole, suffix, "from the start", "12", compiled)
    trained(parts, suffix, "from the start", "6", compiled)
    half = {file.name: file.read_bytes() for file in parts.iterdir()}
    trained(parts, suffix, "on", "12", compiled)
    files = sorted(file.name for file in whole.iterdir())
    assert len(files) == 6 + len(compiled.split())
    for name in files:
        # The files themselves are the same: parameters, slots, steps, and where the stream is.
        assert (whole / name).read_bytes() == (parts / name).read_bytes() != half[name]

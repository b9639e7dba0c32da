"""Random jobs: compiled steps in any engines on any ranks are the eager, native ones of all.

Batches change their size on some ranks and are empty on others, numbers that are masked are NaN, so
that a graph's run does not stand, and one step holds two optimizers. Whatever a rank has to do
again, the ranks stay in step.
"""

from __future__ import annotations

import importlib.util
import random

import numpy as np
import pytest

import tapegraph as tg
from tests.distributed.ranks import results

ENGINES = ["native", "native", "auto"]
if importlib.util.find_spec("tensorflow") is not None:
    ENGINES += ["tensorflow"] * 3
QUICK, THOROUGH = 3, 60


class Job:
    """What a seed makes of it."""

    def __init__(self, seed):
        r = random.Random(seed)
        self.size, self.steps = r.choice([2, 2, 3]), r.randint(5, 12)
        self.engines = [r.choice(ENGINES) for _ in range(self.size)]
        if self.engines.count("native") == 0 and self.size == 3:
            self.engines[0] = "native"
        ranks, steps = range(self.size), range(self.steps)
        self.rows = [[r.choice([4, 4, 4, 4, 3, 0]) for _ in steps] for _ in ranks]
        self.rows[0] = [n or 1 for n in self.rows[0]]  # somebody has data
        self.masked = [[r.random() < 0.25 for _ in steps] for _ in ranks]
        self.kind = r.choice([tg.SGD, tg.Adam])
        self.clips, self.differentiates_twice = r.random() < 0.3, r.random() < 0.5
        self.check_every = r.choice([1, 2, 3, None])

    def train(self, comm, compiled):
        """Train on one rank, and return the parameters."""
        rng = np.random.default_rng(0)
        w, b, q = tg.param(rng.normal(size=(3, 2))), tg.param([0.1, 0.2]), tg.param([0.5, -0.5])
        one, two = self.kind([w, b], 0.05), tg.SGD([q], 0.05)
        first, second = (
            tg.distributed.DataParallel(optimizer, comm, check_every=self.check_every)
            for optimizer in (one, two)
        )

        def step(x, mask):
            z = b * b * mask
            loss = tg.sum(tg.tanh(x @ w + b * q) ** 2) / max(len(x), 1)
            loss = loss + tg.sum(tg.where(z > 0, tg.sqrt(z), 0.0))
            first.zero_grad()
            second.zero_grad()
            loss.backward()
            if self.clips:
                first.all_reduce(len(x))
                tg.clip_grad_norm([w, b], 0.5)
                one.step()
            else:
                first.step(len(x))
            if self.differentiates_twice:
                second.zero_grad()
                tg.sum(tg.where(q * mask > 0, q * mask, 0.0) ** 2).backward()
            second.step()

        run = tg.compile(step) if compiled else step
        data = np.random.default_rng(100 + comm.rank)
        for rows, masked in zip(self.rows[comm.rank], self.masked[comm.rank], strict=True):
            run(data.normal(size=(4, 3))[:rows], np.array([np.nan if masked else 1.0, 1.0]))
        return [p.data for p in (w, b, q)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_ranks_stay_in_step(thorough):
    for seed in range(THOROUGH if thorough else QUICK):
        job = Job(seed)
        eager = results(lambda comm, job=job: job.train(comm, False), job.size)
        compiled = results(lambda comm, job=job: job.train(comm, True), job.size, job.engines)
        for expected, got in zip(eager, compiled, strict=True):
            for a, b in zip(expected, got, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")

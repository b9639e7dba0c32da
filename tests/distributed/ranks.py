"""Ranks as threads of one process, with a communicator of arrays: what MPI does, without it."""

from __future__ import annotations

import contextvars
import importlib.util
import os
import threading

import numpy as np
import pytest

import tapegraph as tg

# Nobody waits longer for another rank: it has failed, or calls what the other does not.
PATIENCE = 20

# A batch, weights to begin with, and the engines that the ranks of a job may have.
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 5)), rng.normal(size=(12, 3))
W = rng.normal(size=(5, 3))
TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
needs_tensorflow = pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not here")
ENGINES = [
    "native",
    pytest.param("tensorflow", marks=needs_tensorflow),
    pytest.param(("native", "tensorflow"), marks=needs_tensorflow),
]


class Threads:
    """What the threads of a job share."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.given = [None] * size


class Comm:
    """A communicator between threads; it checks that all ranks make the same call."""

    def __init__(self, job, rank):
        self.job, self.rank, self.size = job, rank, job.size
        self.calls = 0

    def _all(self, name, array):
        self.calls += name == "Allreduce"
        self.job.given[self.rank] = name, array.copy()
        self.job.barrier.wait()
        names = {(n, a.shape, a.dtype) for n, a in self.job.given}
        arrays = [a for _, a in self.job.given]
        self.job.barrier.wait()
        assert len(names) == 1, names
        return arrays

    def Allreduce(self, send, receive):
        receive[...] = np.sum(self._all("Allreduce", send), axis=0)

    def Bcast(self, array, root=0):
        array[...] = self._all("Bcast", array)[root]


def on_ranks(work, size=2, backend="native"):
    """Return what ``work(comm)`` gives on each rank, or the exception that it raised."""
    engines = [backend] * size if isinstance(backend, str) else backend
    if engines.count("tensorflow") > (os.cpu_count() or 1):
        pytest.skip("TensorFlow has one thread per processor, and here ranks share them")
    job, out = Threads(size), [None] * size

    def run(rank):
        try:
            with tg.use_backend(engines[rank]):
                out[rank] = work(Comm(job, rank))
        except BaseException as error:
            out[rank] = error
            job.barrier.abort()

    threads = [
        threading.Thread(target=contextvars.Context().run, args=(run, rank)) for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * PATIENCE)
        assert not thread.is_alive(), "a rank waits for ever"
    return out


def results(work, size=2, backend="native"):
    """Return what the ranks give; raise what one of them raised."""
    out = on_ranks(work, size, backend)
    errors = [o for o in out if isinstance(o, BaseException)]
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return out

"""The libraries tapegraph is measured against: what they are called, and how to get them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Collection, Iterator
from typing import NamedTuple

INSTALL = 'pip install ".[{}]"'


class Peer(NamedTuple):
    """A library by its import name, and the extra of tapegraph that installs it."""

    module: str
    extra: str = "bench"


# A contender's name starts with its peer's: "torch fused" needs torch.
PEERS = {
    "torch": Peer("torch"),
    "jax": Peer("jax"),
    "autograd": Peer("autograd"),
    "mygrad": Peer("mygrad"),
    "micrograd": Peer("micrograd"),
    "tf.function": Peer("tensorflow", "tensorflow"),
}


def peer_of(contender: str) -> str:
    """Return the name of the peer that a contender needs."""
    return contender.split()[0]


def missing(name: str) -> str | None:
    """Say that a peer is not installed, or return None where it is."""
    peer = PEERS[name]
    if importlib.util.find_spec(peer.module) is None:
        return f"{peer.module} is not installed: {INSTALL.format(peer.extra)}"
    return None


def why_not(name: str) -> str | None:
    """Say why a peer cannot take part, or import it and return None."""
    peer, reason = PEERS[name], missing(name)
    if reason is not None:
        return reason
    try:
        with silence():
            importlib.import_module(peer.module)
    except Exception as error:  # a broken installation raises anything
        return f"{peer.module} does not import: {type(error).__name__}: {error}"
    return None


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Drop what is written to the standard error stream, from C++ too.

    TensorFlow tells of absent GPUs before any setting of log levels is read.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def prepare(threads: int, names: Collection[str] = tuple(PEERS)) -> None:
    """Import the peers that are there, each with the same number of threads and at its best."""
    # First, because TensorFlow takes its threads only before anything has run.
    if "tf.function" in names and why_not("tf.function") is None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    if "torch" in names and why_not("torch") is None:
        import torch

        torch.set_num_threads(threads)
    if "jax" in names and why_not("jax") is None:
        import jax

        jax.config.update("jax_enable_x64", True)  # float32 stays float32: numbers are weak
    if "mygrad" in names and why_not("mygrad") is None:
        import mygrad

        mygrad.turn_memory_guarding_off()  # its documentation's advice where speed counts


def versions() -> dict[str, str]:
    """Return the versions of Python, NumPy, tapegraph and every peer that is installed."""
    found = {"python": platform.python_version()}
    for module in ("numpy", "tapegraph", *(peer.module for peer in PEERS.values())):
        if importlib.util.find_spec(module) is not None:
            found[module] = _version(module)
    return found


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:  # run from a checkout, or renamed
        return str(getattr(importlib.import_module(module), "__version__", "unknown"))

"""The workers of a `tf.distribute` strategy as a communicator, by TensorFlow's collectives.

A collective has a key, the same on all workers, and runs eagerly from any thread: a worker inside a
graph's run meets one that runs natively.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from tapegraph.errors import kind_of, message, sentence
from tapegraph.lowering.runtime import tensorflow
from tapegraph.typed import Array

# Seconds that one worker waits for another that lives: as long as other libraries' groups.
TIMEOUT = 1800.0
# Of all workers; a strategy counts its own groups from 1.
_GROUP = 0x7467


class Workers:
    """The workers of a strategy, with the methods that `tapegraph.distributed` calls."""

    def __init__(self, rank: int, size: int, device: str) -> None:
        self.rank, self.size = rank, size
        self._device = device

    def Allreduce(self, sendbuf: Array, recvbuf: Array, /) -> None:
        recvbuf[...] = self._sum("numbers", sendbuf)

    def Bcast(self, buf: Array, /, root: int = 0) -> None:
        """Give every worker the array of one: its bits, to which the others add zeros."""
        if not buf.size:
            return
        data = buf.tobytes()
        bits = np.frombuffer(data + bytes(-len(data) % 4), np.int32)
        bits = self._sum("bits", bits if self.rank == root else np.zeros_like(bits))
        buf[...] = np.frombuffer(bits.tobytes()[: len(data)], buf.dtype).reshape(buf.shape)

    def _sum(self, what: str, array: Array) -> Array:
        tf = tensorflow()
        key = crc32(f"{what} {array.dtype} {array.shape}".encode()) >> 1
        try:
            with tf.device(self._device):
                total = tf.raw_ops.CollectiveReduceV2(
                    input=tf.constant(array),
                    group_size=self.size,
                    group_key=_GROUP,
                    instance_key=key,
                    ordering_token=[],
                    merge_op="Add",
                    final_op="Id",
                    communication_hint="ring",
                    timeout_seconds=TIMEOUT,
                )
                return np.asarray(total)
        except tf.errors.OpError as error:
            text = (
                f"the all-reduce over {self.size} workers failed: {error.message}. "
                "Restart all workers from the last checkpoint."
            )
            raise ConnectionError(sentence("all_reduce", text)) from error


def workers(op: str, strategy: object) -> Workers:
    tf = tensorflow()
    if callable(strategy):
        strategy = _made(op, strategy)
    distribute = tf.distribute
    known = (
        distribute.MultiWorkerMirroredStrategy,
        distribute.MirroredStrategy,
        distribute.OneDeviceStrategy,
    )
    if not isinstance(strategy, known):
        received = type(strategy).__name__
        if not isinstance(strategy, distribute.Strategy):
            received = kind_of(strategy)
        fix = "Start a process per device, each with the addresses of all in TF_CONFIG."
        raise TypeError(message(op, received, "tf.distribute.MultiWorkerMirroredStrategy()", fix))
    devices, size = strategy.extended.worker_devices, strategy.num_replicas_in_sync
    if len(devices) != 1:
        received = f"{type(strategy).__name__} with {len(devices)} replicas in this process"
        fix = "Start a process per device, and show it that one: tf.config.set_visible_devices."
        raise ValueError(message(op, received, "one replica in each process", fix))
    # The numbers are at home, so they travel from there.
    device = tf.DeviceSpec.from_string(devices[0]).replace(device_type="CPU", device_index=0)
    rank = 0
    if size > 1:

        def number() -> Any:
            return distribute.get_replica_context().replica_id_in_sync_group

        rank = int(tf.function(partial(strategy.run, number), autograph=False)())
    return Workers(rank, size, device.to_string())


def _made(op: str, make: Any) -> Any:
    try:
        return make()
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        text = (
            f"the strategy is made after TensorFlow's first operation ({error}). Make it first in "
            "the program, before tensors, compiled steps and models."
        )
        raise RuntimeError(sentence(op, text)) from error

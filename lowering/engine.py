"""The graph `Engine`: its refusals, its runs, their costs, and the workers of a strategy."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from tapegraph.engines.engine import Costs, Engine, EngineDeclined, Outcome
from tapegraph.errors import kind_of, message, sentence
from tapegraph.lowering import runtime
from tapegraph.lowering.rows import NotLowered, gap_among
from tapegraph.recording.linearize import ATTRS_OF, OP_OF, History
from tapegraph.recording.node import Node
from tapegraph.recording.op import Attrs, Op
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array, Xla

if TYPE_CHECKING:
    from tapegraph.lowering.steps.step import Step


# TensorFlow imports Keras, and that what it finds of these: seconds, where TensorFlow takes 3.0.
_BROUGHT = {"sklearn": 0.9, "jax": 0.6, "matplotlib": 0.5, "pandas": 0.35, "scipy": 0.3}
# Seconds that one worker waits for another that lives: as long as other libraries' groups.
TIMEOUT = 1800.0
# Of all workers; a strategy counts its own groups from 1.
_GROUP = 0x7467


class TensorFlow(Engine):
    """Tapes lowered to TensorFlow graphs; the lowering is imported on first use."""

    name = "tensorflow"
    title = "TensorFlow"
    costs = Costs(load=3.0, compile=0.05, compile_entry=1.5e-3, call=1e-4)

    def unavailable(self) -> EngineDeclined | None:
        return runtime.unavailable()

    def check(self, program: Program) -> None:
        gap = gap_among(program.ops, program.attrs)
        if gap is not None:
            raise NotLowered(gap)
        runtime.check_installed()

    def refusal(self, history: History) -> str | None:
        entries = history.entries[::-1]
        return gap_among(list(map(OP_OF, entries)), map(ATTRS_OF, entries))

    def load(self) -> None:
        runtime.tensorflow()

    def loaded(self) -> bool:
        return runtime.loaded()

    def load_seconds(self) -> float:
        """Return the estimate for TensorFlow and the packages that it imports."""
        new = [name for name in _BROUGHT if name not in sys.modules and runtime.is_found(name)]
        return self.costs.load + sum(map(_BROUGHT.__getitem__, new))

    def compile_seconds(self, entries: int, xla: Xla) -> float:
        seconds = super().compile_seconds(entries, xla)
        if xla is True:
            from tapegraph.lowering.steps.xla import seconds as with_xla

            seconds += with_xla(entries)
        return seconds

    def run(self, recording: Recording, seeds: Sequence[Array]) -> Outcome:
        from tapegraph.lowering.backward import graph_of

        with np.errstate(all="ignore"):
            graph, seconds = graph_of(recording)
        return graph.run(recording, seeds), seconds is None, seconds or 0.0

    def forward(self, op: Op, arrays: tuple[object, ...], attrs: Attrs) -> Array | None:
        from tapegraph.lowering.translate import forward

        with np.errstate(all="ignore"):
            return forward(op, arrays, attrs)

    def check_whole(self, program: Program) -> None:
        runtime.check_installed()
        from tapegraph.lowering.translate import check_lowers  # with all rows, which take a while

        check_lowers(program, whole=True)

    def whole(self, recording: Recording, state: Mapping[int, Node], xla: Xla = "auto") -> Step:
        from tapegraph.lowering.steps.step import Step

        self.check_whole(recording.program)
        return Step(recording, state, xla)

    def workers(self, op: str, strategy: object) -> Workers:
        return _workers(op, strategy)

    def is_transient(self, error: Exception) -> bool:
        """Return whether the error may pass: others hold the memory, or a device is busy."""
        return runtime.is_transient(error)

    def version(self) -> str:
        return runtime.installed_version()

    def details(self) -> dict[str, str]:
        from tapegraph.lowering.backward import cache_info

        try:
            devices = [d.name for d in runtime.tensorflow().config.list_logical_devices()]
        except runtime.Unavailable:
            devices = []
        cache = cache_info()
        graphs = (
            f"{cache.size} of {cache.limit} graphs, {cache.hits} hits, "
            f"{cache.compiles} compiles, {cache.evictions} evictions"
        )
        return ({"devices": ", ".join(devices)} if devices else {}) | {"cache": graphs}


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
        tf = runtime.tensorflow()
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


def _workers(op: str, strategy: object) -> Workers:
    tf = runtime.tensorflow()
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


ENGINE = TensorFlow()

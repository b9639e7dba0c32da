"""The graph `Engine`: its refusals, its runs, and their costs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tapegraph.engines.engine import Costs, Engine, EngineDeclined, Outcome
from tapegraph.lowering.rows.rules import NotLowered, gap_among
from tapegraph.lowering.runtime import (
    Unavailable,
    check_installed,
    installed_version,
    is_found,
    is_transient,
    loaded,
    tensorflow,
    unavailable,
)
from tapegraph.recording.linearize import ATTRS_OF, OP_OF, History
from tapegraph.recording.node import Node
from tapegraph.recording.op import Attrs, Op
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array, Xla

if TYPE_CHECKING:
    from tapegraph.lowering.collectives import Workers
    from tapegraph.lowering.steps.step import Step


# TensorFlow imports Keras, and that what it finds of these: seconds, where TensorFlow takes 3.0.
_BROUGHT = {"sklearn": 0.9, "jax": 0.6, "matplotlib": 0.5, "pandas": 0.35, "scipy": 0.3}


class TensorFlow(Engine):
    """Tapes lowered to TensorFlow graphs; the lowering is imported on first use."""

    name = "tensorflow"
    title = "TensorFlow"
    costs = Costs(load=3.0, compile=0.05, compile_entry=1.5e-3, call=1e-4)

    def unavailable(self) -> EngineDeclined | None:
        return unavailable()

    def check(self, program: Program) -> None:
        gap = gap_among(program.ops, program.attrs)
        if gap is not None:
            raise NotLowered(gap)
        check_installed()

    def refusal(self, history: History) -> str | None:
        entries = history.entries[::-1]
        return gap_among(list(map(OP_OF, entries)), map(ATTRS_OF, entries))

    def load(self) -> None:
        tensorflow()

    def loaded(self) -> bool:
        return loaded()

    def load_seconds(self) -> float:
        """Return the estimate for TensorFlow and the packages that it imports."""
        brought = (s for name, s in _BROUGHT.items() if name not in sys.modules and is_found(name))
        return self.costs.load + sum(brought)

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
        check_installed()
        from tapegraph.lowering.translate import check_lowers  # with all rows, which take a while

        check_lowers(program, whole=True)

    def whole(self, recording: Recording, state: Mapping[int, Node], xla: Xla = "auto") -> Step:
        from tapegraph.lowering.steps.step import Step

        self.check_whole(recording.program)
        return Step(recording, state, xla)

    def workers(self, op: str, strategy: object) -> Workers:
        from tapegraph.lowering.collectives import workers

        return workers(op, strategy)

    def is_transient(self, error: Exception) -> bool:
        """Return whether the error may pass: others hold the memory, or a device is busy."""
        return is_transient(error)

    def version(self) -> str:
        return installed_version()

    def details(self) -> dict[str, str]:
        from tapegraph.lowering.backward import cache_info

        try:
            devices = [d.name for d in tensorflow().config.list_logical_devices()]
        except Unavailable:
            devices = []
        cache = cache_info()
        graphs = (
            f"{cache.size} of {cache.limit} graphs, {cache.hits} hits, "
            f"{cache.compiles} compiles, {cache.evictions} evictions"
        )
        return ({"devices": ", ".join(devices)} if devices else {}) | {"cache": graphs}


ENGINE = TensorFlow()

"""The native engine: a reverse sweep over a `Program` in NumPy alone."""

# ruff: noqa: D102 - `Engine` documents the methods
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tapegraph.engines.engine import Engine, Outcome
from tapegraph.engines.registry import NATIVE
from tapegraph.fallback.inner import NativeInner
from tapegraph.fallback.plan import Plan
from tapegraph.fallback.recorded_sweep import recorded_gradients, transposed_vjp
from tapegraph.fallback.rules import RECORDED, VJPS, recorded_row
from tapegraph.fallback.sweep import gradients, swept
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.op import Op
from tapegraph.recording.program import Recording, SubProgram
from tapegraph.recording.watchers import WATCHING
from tapegraph.typed import Array, Fun, Xla

__all__ = ["ENGINE", "RECORDED", "VJPS", "gradients", "recorded_row"]

_watched = WATCHING.entered.get


class Native(Engine):
    """The reverse sweep in NumPy, to which all others fall back."""

    name = NATIVE
    title = "the native engine"

    def run(self, recording: Recording, seeds: Sequence[Array]) -> Outcome:
        return gradients(recording, seeds, WATCHING.value()), False, 0.0

    def differentiate(self, history: History, seeds: Sequence[Array]) -> Outcome:
        if history.kept or _watched():
            return super().differentiate(history, seeds)
        return quietly(swept, history, seeds), False, 0.0  # by nodes: it needs no columns

    def recorded(self, recording: Recording, seeds: Sequence[object]) -> list[Any]:
        return recorded_gradients(recording, seeds)

    def tangent_rule(self, op: Op, tag: int) -> Fun:
        return transposed_vjp(op, tag)

    def whole(self, recording: Recording, state: Mapping[int, Node], xla: Xla = "auto") -> Plan:
        return Plan(recording)

    def inner(self, body: SubProgram) -> NativeInner:
        return body.make(NativeInner, NativeInner, body)


ENGINE = Native()

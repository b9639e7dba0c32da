"""What `auto` knows of each structure, and which engine it therefore chooses.

A structure runs natively the first time. When it comes back, its graph is compiled if the time
that would save over the steps to come pays for compiling; then both have been measured, and the
faster one stays. TensorFlow is imported once native sweeps have lost as much as its import takes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from tapegraph.ir import Program
from tapegraph.signature import Signature, signature

# A loop is taken to last at least this many steps, and a graph to halve a step's time.
HORIZON = 200
SAVING = 0.5
# How often a compiled graph runs before it is judged.
TRIALS = 3
# Seconds: a call of the smallest graph, importing TensorFlow, and compiling one entry (a first
# guess; what compiling takes on this machine is measured).
CALL = 1e-4
IMPORT = 3.0
COMPILE = 7e-4
# Structures remembered; the least recently used are forgotten.
LIMIT = 512


class Record:
    """What was measured of one structure, in seconds.

    Attributes
    ----------
    entries : int
        The length of its programs.
    native, graph : float
        The best run of each engine, as noise only adds.
    native_runs, graph_runs : int
        How often each has run.
    """

    __slots__ = ("entries", "graph", "graph_runs", "native", "native_runs")

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.native = self.graph = float("inf")
        self.native_runs = self.graph_runs = 0

    def why_native(self, *, imported: bool) -> str | None:
        """Return why the native engine should run, or None where TensorFlow should.

        Parameters
        ----------
        imported : bool
            Whether TensorFlow is loaded.
        """
        if not self.native_runs:
            return "auto: a structure runs natively the first time"
        if self.graph_runs >= TRIALS:
            if self.graph <= self.native:
                return None
            measured = f"{self.native * 1e3:.3g} ms against {self.graph * 1e3:.3g} ms"
            return f"auto: the native engine measured faster, {measured} in TensorFlow"
        if self.graph_runs:
            return None
        if not imported and SAVING * _native_seconds < IMPORT:
            return f"auto: importing TensorFlow takes about {IMPORT:.2g} s; that does not pay yet"
        price = self.entries * _compile_entry
        saved = SAVING * (self.native - CALL) * max(HORIZON, self.native_runs)
        if saved < price:
            return f"auto: compiling takes about {price:.2g} s; that does not pay yet"
        return None

    def ran_natively(self, seconds: float) -> None:
        """Remember what a native sweep took."""
        global _native_seconds
        _native_seconds += seconds
        self.native = min(self.native, seconds)
        self.native_runs += 1

    def ran_compiled(self, seconds: float, compile_seconds: float) -> None:
        """Remember what a graph took to run and, if it was compiled now, to compile."""
        global _compile_entry
        if compile_seconds:
            # The run after compiling also prepares the graph, so it is no measurement.
            _compile_entry = 0.5 * (_compile_entry + (compile_seconds + seconds) / self.entries)
            return
        self.graph = min(self.graph, seconds)
        self.graph_runs += 1


_records: OrderedDict[Signature, Record] = OrderedDict()
_lock = threading.Lock()
_compile_entry = COMPILE
_native_seconds = 0.0


def record(program: Program) -> Record:
    """Return what is known of a program's structure."""
    key = signature(program)[0]
    with _lock:
        known = _records.get(key)
        if known is None:
            known = _records[key] = Record(len(program))
            while len(_records) > LIMIT:
                _records.popitem(last=False)
        else:
            _records.move_to_end(key)
        return known


def forget() -> None:
    """Forget every structure."""
    with _lock:
        _records.clear()

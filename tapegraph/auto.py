"""What `auto` knows of each structure, and which engine it therefore chooses.

A structure runs natively the first time. When it comes back, its graph is compiled if the time
that would save over the steps to come pays for compiling; then both have been measured, and the
faster one stays. TensorFlow is imported once native sweeps have taken as long as its import.
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
    """What was measured of one structure, in seconds."""

    __slots__ = ("graph", "native", "native_runs", "trials")

    def __init__(self) -> None:
        self.native = float("inf")
        self.native_runs = 0
        self.graph = float("inf")
        self.trials = 0


_records: OrderedDict[Signature, Record] = OrderedDict()
_lock = threading.Lock()
_compile_entry = COMPILE
_native_seconds = 0.0


def _record(program: Program) -> Record:
    key = signature(program)[0]
    with _lock:
        record = _records.get(key)
        if record is None:
            record = _records[key] = Record()
            while len(_records) > LIMIT:
                _records.popitem(last=False)
        else:
            _records.move_to_end(key)
        return record


def why_native(program: Program, *, imported: bool) -> str | None:
    """Return why the native engine should run a program, or None where TensorFlow should.

    Parameters
    ----------
    program : Program
        What is to be differentiated.
    imported : bool
        Whether TensorFlow is loaded.
    """
    record = _record(program)
    if not record.native_runs:
        return "auto: a structure runs natively the first time"
    if record.trials >= TRIALS:
        if record.graph <= record.native:
            return None
        measured = f"{record.native * 1e3:.3g} ms against {record.graph * 1e3:.3g} ms"
        return f"auto: the native engine measured faster, {measured} in TensorFlow"
    if record.trials:
        return None
    if not imported and _native_seconds < IMPORT:
        return f"auto: importing TensorFlow takes about {IMPORT:.2g} s and does not pay back yet"
    price = len(program) * _compile_entry
    saved = SAVING * (record.native - CALL) * max(HORIZON, record.native_runs)
    if saved < price:
        return f"auto: compiling takes about {price:.2g} s and does not pay back yet"
    return None


def ran_natively(program: Program, seconds: float) -> None:
    """Remember what a native sweep took; the best run counts, as noise only adds."""
    global _native_seconds
    _native_seconds += seconds
    record = _record(program)
    record.native = min(record.native, seconds)
    record.native_runs += 1


def ran_compiled(program: Program, seconds: float, compile_seconds: float) -> None:
    """Remember what a graph took to run and, if it was compiled now, to compile."""
    global _compile_entry
    record = _record(program)
    if compile_seconds:
        # The run after compiling also prepares the graph, so it is no measurement.
        _compile_entry = 0.5 * (_compile_entry + (compile_seconds + seconds) / len(program))
        return
    record.graph = min(record.graph, seconds)
    record.trials += 1


def forget() -> None:
    """Forget every structure."""
    with _lock:
        _records.clear()

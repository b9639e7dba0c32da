"""What `auto` knows of each structure, and which engine it therefore chooses.

A structure runs natively at first. What is tried to make it faster may cost a tenth of what it
takes anyway: importing TensorFlow a tenth of the sweeps so far, compiling its graph a tenth of the
sweeps that a loop is taken to need. Then both engines have been measured, and the faster one stays.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextvars import ContextVar

from tapegraph.locks import Lock
from tapegraph.recording.program import Program
from tapegraph.recording.structure import Key

# The part of the time spent anyway that may be spent on trying to save some.
SHARE = 0.1
# A loop is taken to last at least so many steps.
HORIZON = 200
# How often each engine runs before it is judged; native twice as often, its first runs being cold.
TRIALS = 3
# A graph must take less than this part of native's time: it keeps threads of its own.
EDGE = 0.95
# Seconds: a call of the smallest graph, importing TensorFlow, compiling any graph and, besides,
# each of its entries (a first guess; what compiling takes on this machine is measured).
CALL = 1e-4
IMPORT = 3.0
COMPILE = 0.05
COMPILE_ENTRY = 1.5e-3
# Structures remembered; the least recently used are forgotten.
LIMIT = 512

# Which engine this thread or task ran last, and when it was done.
_previous: ContextVar[tuple[str, float] | None] = ContextVar("tapegraph_previous", default=None)


class Times:
    """How often one engine ran one structure, and its best times, in seconds, as noise only adds.

    Attributes
    ----------
    runs : int
        Runs so far.
    run : float
        The backward alone.
    step : float
        From the end of the backward before to the end of this one, both in this engine. It shows
        what an engine costs the forward: its threads may keep the processors busy.
    """

    __slots__ = ("run", "runs", "step")

    def __init__(self) -> None:
        self.runs = 0
        self.run = self.step = float("inf")

    def took(self, seconds: float, since: float) -> None:
        """Remember one run, and how long ago this engine's last backward was."""
        self.runs += 1
        self.run = min(self.run, seconds)
        self.step = min(self.step, since)


class Record:
    """What is known of one structure.

    Attributes
    ----------
    entries : int
        The length of its programs.
    native, graph : Times
        What each engine took.
    compiled : bool
        Whether its graph has been compiled.
    failure : str or None
        Why TensorFlow failed to run it: it would at every step, and compile for nothing.
    """

    __slots__ = ("compiled", "entries", "failure", "graph", "native")

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.compiled = False
        self.failure: str | None = None
        self.native = Times()
        self.graph = Times()

    def why_native(self) -> str | None:
        """Return why the native engine should run, or None where TensorFlow should."""
        native, graph = self.native, self.graph
        if self.failure is not None:
            return self.failure
        if native.runs < TRIALS:
            return f"auto: a structure runs natively the first {TRIALS} times"
        if graph.runs >= TRIALS:
            if native.runs < 2 * TRIALS:
                return "auto: the native engine is timed again: its first runs were cold"
            times = native.step, graph.step
            if max(times) == float("inf"):  # other backwards run in between
                times = native.run, graph.run
            if times[1] <= EDGE * times[0]:
                return None
            ours, theirs = (f"{t * 1e3:.3g} ms" for t in times)
            return f"auto: the native engine took {ours}, against {theirs} in TensorFlow"
        if self.compiled:
            return None
        price = COMPILE + self.entries * _compile_entry
        if SHARE * (native.run - CALL) * max(HORIZON, native.runs) < price:
            return _too_dear("compiling", price)
        return None

    def ran_natively(self, seconds: float) -> None:
        """Remember what a native sweep took."""
        global _native_seconds, _longest
        _native_seconds += seconds
        _longest = max(_longest, seconds)
        self.native.took(seconds, _since("native"))

    def ran_compiled(self, seconds: float, compile_seconds: float) -> None:
        """Remember what a graph took to run and, if it was compiled now, to compile."""
        global _compile_entry
        since = _since("tensorflow")
        if compile_seconds:
            self.compiled = True
            # The run after compiling also prepares the graph, so it is no measurement.
            spent = max(0.0, compile_seconds + seconds - COMPILE) / self.entries
            _compile_entry = 0.5 * (_compile_entry + spent)
        else:
            self.graph.took(seconds, since)


class _TooEarly(Record):
    """Stands for every structure while TensorFlow can pay for none: they are not told apart yet."""

    __slots__ = ("reason",)

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(0)
        self.reason = _too_dear(what, seconds)

    def why_native(self) -> str:
        return self.reason


def _too_dear(what: str, seconds: float) -> str:
    return f"auto: {what} takes about {seconds:.2g} s; that does not pay yet"


def _since(engine: str) -> float:
    """Return the seconds since this engine's last backward here; inf where another one ran."""
    now = time.perf_counter()
    previous = _previous.get()
    _previous.set((engine, now))
    return now - previous[1] if previous is not None and previous[0] == engine else float("inf")


_records: OrderedDict[Key, Record] = OrderedDict()
_lock = Lock()
_compile_entry = COMPILE_ENTRY
_native_seconds = _longest = 0.0  # all sweeps together, and the longest
_import_too_early = _TooEarly("importing TensorFlow", IMPORT)
_compile_too_early = _TooEarly("compiling", COMPILE)


def record(program: Program, *, imported: bool) -> Record:
    """Return what is known of a program's structure, or of all while it matters for none.

    Parameters
    ----------
    program : Program
        What was recorded.
    imported : bool
        Whether TensorFlow is loaded.
    """
    if not imported:
        if SHARE * _native_seconds < IMPORT:
            return _import_too_early
    elif SHARE * max(HORIZON * _longest, _native_seconds) < COMPILE:
        return _compile_too_early
    key = program.key
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

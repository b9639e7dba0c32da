"""Compiled graphs by structure: bounded, shared by threads, compiled once each."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import message
from tapegraph.interrupts import Lock
from tapegraph.recording.program import Key, Recording, scalar_bits


class CacheInfo(NamedTuple):
    """Counts of the compiled-graph cache since the last `cache_clear`."""

    hits: int
    misses: int
    size: int
    compiles: int
    evictions: int
    limit: int


class _Entry:
    """The graph of one structure, and which of its scalars have been seen to change."""

    __slots__ = ("bits", "compiled", "lock", "varying", "wiring")

    def __init__(self) -> None:
        self.lock = Lock()
        self.compiled: Any = None
        self.bits: Any = None
        self.varying: set[int] = set()
        self.wiring: Any = None


class _Cache:
    def __init__(self, limit: int) -> None:
        self.lock = Lock()
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        self.limit = limit
        self.hits = self.misses = self.compiles = self.evictions = 0

    def entry(self, key: Key) -> _Entry:
        """Return the entry of a structure, made where it is new; the oldest one leaves."""
        with self.lock():
            found = self.entries.get(key)
            if found is None:
                found = self.entries[key] = _Entry()
                self._shrink()
            else:
                self.entries.move_to_end(key)
            return found

    def discard(self, key: Key, entry: _Entry) -> None:
        """Forget a structure that did not compile."""
        with self.lock():
            if self.entries.get(key) is entry and entry.compiled is None:
                del self.entries[key]

    def varying(self, wiring: Any) -> set[int]:
        """Return which scalars have changed in programs of one wiring, whatever their shapes."""
        with self.lock():
            alike = [e.varying for e in self.entries.values() if e.wiring == wiring]
        return set().union(*alike)

    def _shrink(self) -> None:
        while len(self.entries) > self.limit:
            self.entries.popitem(last=False)
            self.evictions += 1

    def resize(self, limit: int) -> None:
        with self.lock():
            self.limit = limit
            self._shrink()

    def clear(self) -> None:
        with self.lock():
            self.entries.clear()
            self.hits = self.misses = self.compiles = self.evictions = 0

    def count(self, *, hit: bool) -> None:
        with self.lock():
            self.hits += hit
            self.misses += not hit
            self.compiles += not hit

    def info(self) -> CacheInfo:
        with self.lock():
            return CacheInfo(
                self.hits,
                self.misses,
                len(self.entries),
                self.compiles,
                self.evictions,
                self.limit,
            )


CACHE = _Cache(limit=128)


def graphs_of(recording: Recording, compile: Any) -> tuple[Any, float | None]:
    """Return a structure's graphs and, where they had to be compiled now, the seconds that took.

    ``compile(recording, varying)`` makes them; ``varying`` says which scalars are fed.
    """
    key = recording.program.key
    entry = CACHE.entry(key)
    try:
        with entry.lock():
            found, seconds = _compiled(entry, recording, compile)
    except BaseException:
        CACHE.discard(key, entry)
        raise
    CACHE.count(hit=seconds is None)
    return found, seconds


def _compiled(entry: _Entry, recording: Recording, compile: Any) -> tuple[Any, float | None]:
    """Return the entry's graph and, where it had to be compiled now, the seconds that took."""
    program, scalars = recording.program, recording.scalars
    bits = scalar_bits(scalars)
    if entry.compiled is None:
        entry.wiring = tuple(zip(program.ops, program.inputs, strict=True))
        entry.varying = CACHE.varying(entry.wiring)
    else:
        changed = {int(i) for i in np.nonzero(bits != entry.bits)[0]} - entry.varying
        if not changed:
            return entry.compiled, None
        # Scalars that change one after the other would compile each time: the second time, all
        # of them are fed.
        entry.varying = set(range(len(scalars))) if entry.varying else changed
    entry.compiled = compile(recording, sorted(entry.varying))
    entry.bits = bits
    return entry.compiled, entry.compiled.seconds


def cache_info() -> CacheInfo:
    """Return the counts of the compiled-graph cache.

    :returns: CacheInfo. ``hits`` (graphs found), ``misses`` (not found or outgrown), ``size``
        (structures held), ``compiles``, ``evictions`` and ``limit``.
    """
    return CACHE.info()


def cache_clear() -> None:
    """Drop every compiled graph and set the counts to zero."""
    CACHE.clear()


def set_cache_limit(limit: int) -> None:
    """Bound how many structures the cache holds; the least recently used leave first.

    :param limit: At least 1.
    :raises ValueError: The limit is less than 1.
    """
    if limit < 1:
        raise ValueError(message("set_cache_limit", str(limit), "at least 1"))
    CACHE.resize(int(limit))

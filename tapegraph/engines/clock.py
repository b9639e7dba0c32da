"""The clock that everything measured is read from."""

from __future__ import annotations

import time


class Clock:
    """Seconds from any fixed moment on; tests put another ``now`` in place."""

    def __init__(self) -> None:
        self.now = time.perf_counter


CLOCK = Clock()

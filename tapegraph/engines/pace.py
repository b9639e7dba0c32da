"""How fast this machine runs Python, against the one that the engines' costs were measured on.

What importing a library will take can only be guessed before; but of the time of a fixed piece of
work it is much the same multiple on a slow machine, a fast one, and one that others use.
"""

from __future__ import annotations

import time
from functools import cache

_WORK = "".join(
    f"class C{i}:\n"
    f"    def f(self, x, y=({i}, 'a{i}'), *z, **k):\n"
    f"        return [x + y[0] for x in z if x is not k]\n"
    for i in range(40)
)
_REFERENCE = 2.5e-3  # seconds that it took where importing TensorFlow took 3.0
_TIMES = 7
# Processor time, where it is fine enough: what others use of the machine is not its pace.
_IS_FINE = time.get_clock_info("process_time").resolution < 1e-4
_now = time.process_time if _IS_FINE else time.perf_counter


@cache
def pace() -> float:
    """Return by what to multiply a guess; it is measured once, in some 20 ms."""
    return sorted(_seconds() for _ in range(_TIMES))[_TIMES // 2] / _REFERENCE


def _seconds() -> float:
    start = _now()
    compile(_WORK, __name__, "exec")
    return _now() - start

"""NumPy's warnings of a forward, repeated at the user's line, once per line."""

from __future__ import annotations

import re
import warnings
from contextvars import copy_context
from typing import Any

import numpy as np

from tapegraph.errors import warn
from tapegraph.typed import Fun

# The modules and packages whose lines call NumPy in a forward.
FORWARDS = (
    "tapegraph.recording.record",
    "tapegraph.recording.watchers",
    "tapegraph.differentiation.products",
    "tapegraph.ops",
)

# There these warnings are errors, after which the forward runs again without them.
warnings.filterwarnings(
    "error",
    message=r"(divide by zero|overflow|underflow|invalid value) encountered",
    category=RuntimeWarning,
    module=rf"({'|'.join(map(re.escape, FORWARDS))})(\.|$)",
)


# NumPy's context variable and its value where overflow and the like are ignored.
_quiet, _here = copy_context(), copy_context()
_quiet.run(np.seterr, all="ignore")
_QUIET = [(var, value) for var, value in _quiet.items() if _here.get(var) is not value]
del _quiet, _here
# What is to happen where a number overflows and the like, as NumPy keeps it: another object each
# time that it is set. Where it is kept otherwise, NumPy is asked each time.
_in_force: Any = _QUIET[0][0] if len(_QUIET) == 1 else None
_mild: Any = None  # the last one that raises and calls nothing


def are_mild() -> bool:
    """Return whether NumPy ignores or only warns of overflow and the like here."""
    global _mild
    now = None if _in_force is None else _in_force.get()
    if now is not None and now is _mild:
        return True
    if not {"ignore", "warn"}.issuperset(np.geterr().values()):
        return False
    _mild = now
    return True


def watched(name: str, compute: Fun, *arrays: object, **attrs: object) -> Any:
    """Compute, and give NumPy's warnings at the user's line, as those of an operation."""
    kinds: list[str] = []
    called: dict[str, Any] = {k: "call" for k, mode in np.geterr().items() if mode == "warn"}
    with np.errstate(call=lambda kind, flag: kinds.append(kind), **called):
        out = compute(*arrays, **attrs)
    for kind in dict.fromkeys(kinds):
        warn(f"{kind} encountered in {name}", RuntimeWarning)
    return out


def quietly(fn: Fun, *args: object) -> Any:
    """Call a function while NumPy ignores overflow and the like, in a context that is dropped."""
    context = copy_context()
    for variable, value in _QUIET:
        context.run(variable.set, value)
    return context.run(fn, *args)

"""Environment variables that are switches, and the errors of wrong values."""

from __future__ import annotations

import os
import sys

STRICT, COMPILE, PROGRESS = "TAPEGRAPH_STRICT", "TAPEGRAPH_COMPILE", "TAPEGRAPH_PROGRESS"
RECORDS = "TAPEGRAPH_RECORDS"


# `os.environ` encodes each name that it is asked for, and raises inside for one that is not set:
# a microsecond. The dictionary behind it is private, and asked where it is there.
_VARIABLES = os.environ
_behind = getattr(os.environ, "_data", None)
_encoded = getattr(os.environ, "encodekey", None)
_COMPILE = _encoded(COMPILE) if _encoded is not None else COMPILE


def compiles() -> bool:
    """Return whether the environment lets compiled functions run their programs now."""
    if os.environ is _VARIABLES and _behind is not None and not _behind.get(_COMPILE):
        return True
    return switched(COMPILE) is not False


def switched(variable: str) -> bool | None:
    """Return True for ``1``, False for ``0``, None if unset; raise ValueError for others."""
    text = os.environ.get(variable, "")
    if text not in ("", "0", "1"):
        raise wrong_value(variable, text, "'1' or '0'")
    return text == "1" if text else None


def wrong_value(variable: str, received: object, expected: str) -> ValueError:
    text = f"{variable}: received {received!r}; expected {expected}"
    started = sys.orig_argv
    by_name = os.path.basename(getattr(sys, "argv", [""])[0]) in ("tapegraph", "tapegraph.exe")
    if by_name or ("-m", "tapegraph") in zip(started, started[1:], strict=False):
        # Where nobody can catch it: the package is imported first.
        sys.stderr.write(f"tapegraph: {text}\n")
        raise SystemExit(2)
    return ValueError(text)


for _variable in (STRICT, COMPILE, PROGRESS, RECORDS):
    switched(_variable)

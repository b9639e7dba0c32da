"""Where the library's code lies, and the environment variables that are switches."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = os.path.dirname(os.path.abspath(__file__))
_root = os.path.dirname(PACKAGE)
# The folders beside the package in a checkout, by the name they are installed under.
SIBLINGS = {
    f"tapegraph.{name}": os.path.join(_root, name)
    for name in ("fallback", "lowering")
    if os.path.exists(os.path.join(_root, "pyproject.toml"))
    and os.path.exists(os.path.join(_root, name, "__init__.py"))
}
FOLDERS = (PACKAGE, *SIBLINGS.values())


class _Siblings:
    """Finds ``tapegraph.fallback`` and ``tapegraph.lowering`` in a checkout, and nothing else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder = SIBLINGS.get(name)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )


def find_siblings() -> None:
    """Let Python find the sibling folders, after any finder that an installation registered."""
    if SIBLINGS and _Siblings not in sys.meta_path:
        sys.meta_path.append(_Siblings)


# Switches

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

"""Location of the library's code: one folder when installed, three in a checkout."""

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


class Siblings:
    """Finds ``tapegraph.fallback`` and ``tapegraph.lowering`` in a checkout, and nothing else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of the two packages; None for every other module."""
        folder = SIBLINGS.get(name)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )


def find_siblings() -> None:
    """Let Python find the sibling folders, after any finder that an installation registered."""
    if SIBLINGS and Siblings not in sys.meta_path:
        sys.meta_path.append(Siblings)

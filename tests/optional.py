"""Packages that a test file needs, and that are imported when a test first uses them.

TensorFlow takes four seconds to import and PyTorch two: a run that selects other tests, and every
process that collects them, would pay for both.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class Optional:
    """A module by its name; the first attribute imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # for which pytest asks whatever a file holds
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def optional(name: str, reason: str = "") -> Any:
    """Skip the file that asks where a package is not installed; return its module otherwise."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason or f"needs {name}", allow_module_level=True)
    return Optional(name)

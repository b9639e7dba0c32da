"""What a step that cannot be one program is told."""

from __future__ import annotations


class TraceMismatchError(RuntimeError):
    """Two recordings of one step differ: a Python number, array or branch changes between calls."""

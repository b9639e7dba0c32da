"""Special functions, through SciPy."""

from __future__ import annotations

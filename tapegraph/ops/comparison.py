"""Choosing, rounding and signs, element by element."""

from __future__ import annotations

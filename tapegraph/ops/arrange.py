"""Joining, splitting, stacking, repeating and turning."""

from __future__ import annotations

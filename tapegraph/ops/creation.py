"""Arrays made like another, copies and conversions."""

from __future__ import annotations

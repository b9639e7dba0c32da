"""Taking, sorting and masking elements."""

from __future__ import annotations

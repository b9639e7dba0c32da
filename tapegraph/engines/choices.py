"""Choices kept on disk, for the next process: where ``TAPEGRAPH_CACHE_DIR`` names a folder."""

from __future__ import annotations

import os
from typing import Protocol

from tapegraph.recording.structure import Key

VARIABLE = "TAPEGRAPH_CACHE_DIR"
Seconds = dict[str, float]


class Kept(Protocol):
    """What is kept of one structure."""

    def recall(self) -> Seconds:
        """Return the seconds of each way by its name, or nothing."""

    def remember(self, seconds: Seconds) -> None:
        """Keep the seconds of each way by its name."""


def kept(kind: str, key: Key) -> Kept | None:
    """Return what is kept of a structure, or None where the user has not asked for that.

    Parameters
    ----------
    kind : str
        Which choice it is: a structure may have several.
    key : tuple
        The structure, as in `Program.key`.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    # Imported by who asks: what reads and writes files takes as long to import as all the rest.
    from pathlib import Path

    from tapegraph.engines.choice_file import choice

    return choice(Path(folder).expanduser(), kind, key)

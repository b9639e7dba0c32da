"""Where gradients of other processes come in: before an optimizer's step, and before clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tapegraph.optim.leaves import Leaf
from tapegraph.recording.scopes import Setting


class Averaging(Protocol):
    """What stands between gradients and those who use them."""

    def average(self, params: Sequence[Leaf]) -> None:
        """Let parameters have the average of their gradients over all processes."""

    def step(self, optimizer: object) -> None:
        """Take an optimizer's step with such gradients."""


AVERAGING: Setting[Averaging | None] = Setting("tapegraph_averaging", default=None)

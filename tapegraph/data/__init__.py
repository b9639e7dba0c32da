"""Training data in batches: `batches` for a loop, `epoch` for ``step.scan``."""

from tapegraph.data.batches import Batches, Epoch, batches, epoch

__all__ = ["Batches", "Epoch", "batches", "epoch"]

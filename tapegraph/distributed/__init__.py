"""Training on several processes: gradients averaged over the ranks of an MPI communicator."""

from __future__ import annotations

from tapegraph.distributed.data_parallel import DataParallel

__all__ = ["DataParallel"]

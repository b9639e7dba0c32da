"""What a backward did, for whoever asks afterwards."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What one backward did.

    Attributes
    ----------
    backend : str
        The engine that ran: ``"tensorflow"`` or ``"native"``.
    reason : str or None
        Why the native engine ran, else None.
    entries : int
        The length of the differentiated program.
    cached : bool
        Whether a compiled graph was found.
    compile_seconds, run_seconds : float
        Seconds spent compiling and running.
    error : str or None
        The traceback where the native engine ran because another one failed, else None.
    """

    backend: str
    reason: str | None
    entries: int
    cached: bool
    compile_seconds: float
    run_seconds: float
    error: str | None = None


LAST: ContextVar[Report | None] = ContextVar("tapegraph_report", default=None)


def last_backward() -> Report | None:
    """Return the report of this thread's last backward, or None before the first.

    Returns
    -------
    Report or None
        What ran, how long it took, and why.

    Examples
    --------
    >>> import tapegraph as tg
    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().entries
    3
    """
    return LAST.get()

"""Whether a compiled function may use XLA: the option of `compile`, and ``TAPEGRAPH_XLA``."""

from __future__ import annotations

import os
from typing import Any

from tapegraph.errors import message
from tapegraph.typed import Xla

_VARIABLE = "TAPEGRAPH_XLA"
_OF_TEXT: dict[str, Xla] = {"1": True, "0": False, "auto": "auto", "": "auto"}


def _from_environment() -> Xla:
    """Return what ``TAPEGRAPH_XLA`` says.

    :raises ValueError: It says something else than 1, 0 or auto.
    """
    text = os.environ.get(_VARIABLE, "")
    if text not in _OF_TEXT:
        raise ValueError(f"{_VARIABLE}: received {text!r}; expected '1', '0' or 'auto'")
    return _OF_TEXT[text]


_default = _from_environment()


def checked_option(option: Any) -> Xla:
    """Return the option of `compile`; None stands for the default.

    :raises ValueError: It is neither a bool nor "auto".
    """
    if option is None:
        return _default
    if isinstance(option, bool) or (isinstance(option, str) and option == "auto"):
        return option  # type: ignore[return-value]
    raise ValueError(message("compile", f"xla={option!r}", "True, False, 'auto' or None"))

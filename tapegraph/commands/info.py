"""What is installed, and what is in force."""

from __future__ import annotations

import platform

import numpy as np

import tapegraph as tg
from tapegraph.commands import styled
from tapegraph.engines import registry
from tapegraph.engines.backend import NUMPY, chosen_by, executor
from tapegraph.engines.engine import EngineDeclined


def info() -> list[str]:
    """Return the lines of ``python -m tapegraph info``."""
    found = facts().items()
    return [f"{styled(f'{topic:<11}', 'bold')} {text}".rstrip() for topic, text in found]


def facts() -> dict[str, str]:
    """Return versions, the engine in force and why, devices and the cache, by topic."""
    rows = {
        "tapegraph": tg.__version__,
        "python": f"{platform.python_version()} on {platform.machine()} {platform.system()}",
        "numpy": np.__version__,
    }
    usable: dict[str, str] = {}
    details = {"devices": "CPU (NumPy)"}
    for name in registry.rivals():
        engine = registry.engine(name)
        try:
            rows[name] = engine.version()
            usable[name] = engine.title
        except EngineDeclined as declined:
            rows[name] = f"not used: {declined}"
        details |= engine.details()
    chosen = tg.get_backend()
    in_force = chosen if chosen in usable else registry.NATIVE
    if chosen == registry.AUTO and usable:
        in_force += f", and {' or '.join(usable.values())} for what measures faster there"
    rows["backend"] = f"{chosen} ({chosen_by()}); engine in force: {in_force}"
    kernels, threshold = executor()
    rows["forward"] = kernels
    if kernels != NUMPY:
        rows["forward"] += f" for arrays of {threshold} elements and more"
    return rows | details

"""What each node of TensorFlow's graphs took, by its own profiler."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tapegraph.interrupts import raise_interrupt
from tapegraph.lowering.runtime import tensorflow

NodeTime = tuple[str, float, float, str]


def node_times() -> Callable[[], list[NodeTime]] | None:
    """Start TensorFlow's profiler, and return what stops it and gives the nodes that ran.

    Each is its type, when it started after the first, and how long it ran, in seconds, and its
    thread. It is None where the profiler cannot be started, for instance because it runs already.
    """
    profiler: Any = tensorflow().profiler.experimental
    folder = tempfile.TemporaryDirectory(prefix="tapegraph-profile-")
    try:
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        options = profiler.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        profiler.start(folder.name, options=options)
    except Exception as error:
        raise_interrupt(error)
        folder.cleanup()
        return None

    def stop() -> list[NodeTime]:
        try:
            profiler.stop()
            return _nodes(Path(folder.name), xplane_pb2.XSpace())
        except Exception as error:
            raise_interrupt(error)
            return []  # somebody else has stopped it
        finally:
            folder.cleanup()

    return stop


def _nodes(folder: Path, space: Any) -> list[NodeTime]:
    """Read the events of nodes, which alone are called ``name:type`` and shown by the type."""
    found = []
    for file in folder.rglob("*.xplane.pb"):
        space.ParseFromString(file.read_bytes())
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events:
                    kind = plane.event_metadata[event.metadata_id]
                    _, _, node = kind.name.rpartition(":")
                    if node and node == kind.display_name:
                        start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                        found.append((node, start, event.duration_ps * 1e-12, line.name))
    return found

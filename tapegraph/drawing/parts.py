"""A sketch as boxes, and frames around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tapegraph.drawing.sketch import DERIVATIVE, Sketch

# The title of a box of operations that have nothing in common.
MIXED = "operations"


@dataclass(eq=False)
class Part:
    """A box, or a frame around parts.

    - members: The operations or the leaf of a box, those that are drawn.
    - title: What a frame or a closed box is called; ``""`` of one that shows its members.
    - times: How often a frame repeats, or a box stands side by side.
    - parts: What a frame holds.
    """

    members: list[int] = field(default_factory=list)
    title: str = ""
    times: int = 1
    parts: list[Part] = field(default_factory=list)

    @property
    def is_frame(self) -> bool:
        """Whether it is drawn around others."""
        return bool(self.parts)

    def boxes(self) -> list[Part]:
        """Return all boxes inside, itself if it is one."""
        return [box for part in self.parts for box in part.boxes()] if self.parts else [self]

    def all_members(self) -> list[int]:
        """Return the members of all boxes inside."""
        return [i for box in self.boxes() for i in box.members]

    def frames(self) -> list[Part]:
        """Return all frames inside and itself, the outermost first."""
        found = [self] if self.is_frame else []
        for frame in found:  # grows while it is walked
            found += [part for part in frame.parts if part.is_frame]
        return found


def closed(parts: list[Part], title: str = MIXED) -> Part:
    """Return one box for some parts."""
    if len(parts) == 1:
        return parts[0]
    return Part([i for part in parts for i in part.all_members()], title=title)


@dataclass
class Folded:
    """A sketch as parts.

    - base: By vertex, the one that is drawn for it: itself, unless it is folded away.
    - box: By vertex that is drawn, the box that shows it; none for a leaf that is inscribed.
    - inscribed: The leaves that are written into their reader's box.
    """

    sketch: Sketch
    root: Part
    base: list[int]
    box: dict[int, Part]
    inscribed: set[int]

    def alike(self) -> dict[int, list[int]]:
        """Return by vertex that is drawn all that it stands for, in order."""
        found: dict[int, list[int]] = {}
        for vertex, base in enumerate(self.base):
            found.setdefault(base, []).append(vertex)
        return found


def add_leaves(sketch: Sketch, root: Part, base: list[int], inscribed: set[int]) -> None:
    """Draw the leaves that are boxes: in the innermost frame around all readers, before the first.

    A leaf that is one for all rounds of what repeats stands outside of it.
    """
    paths = {i: path for path in _paths(root, []) for i in path[-1].members}
    readers: dict[int, list[list[Part]]] = {}
    alike: dict[int, int] = {}
    for i, vertex in enumerate(sketch.vertices):
        if vertex.is_leaf and base[i] not in inscribed:
            readers.setdefault(base[i], [])
            alike[base[i]] = alike.get(base[i], 0) + 1
        for x in vertex.inputs if vertex.kind != DERIVATIVE else ():
            if sketch.vertices[x].is_leaf and base[x] not in inscribed:
                readers.setdefault(base[x], []).append(paths[base[i]])
    order = {id(path[-1]): n for n, path in enumerate(paths.values())}
    before: dict[int, list[Part]] = {}
    for leaf, read_in in readers.items():
        first = min(read_in, key=lambda path: order[id(path[-1])], default=[root, root])
        depth = _common(read_in) if read_in else 1
        while depth > 1 and first[depth - 1].times > 1 and alike[leaf] == 1:
            depth -= 1
        times = 1 if first[depth - 1].times > 1 else alike[leaf]
        before.setdefault(id(first[depth]), []).append(Part([leaf], times=times))
    for frame in root.frames():
        frame.parts = [p for part in frame.parts for p in (*before.get(id(part), ()), part)]
    root.parts += before.get(id(root), ())


def _paths(part: Part, path: list[Part]) -> list[list[Part]]:
    """Return the way from the root to each box."""
    here = [*path, part]
    return [found for p in part.parts for found in _paths(p, here)] if part.parts else [here]


def _common(paths: list[list[Part]]) -> int:
    """Return how many frames there are around all of some boxes."""
    depth = 0
    while all(path[depth] is paths[0][depth] and path[depth].is_frame for path in paths):
        depth += 1
    return depth

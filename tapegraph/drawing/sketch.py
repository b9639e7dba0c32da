"""What a picture is made of: vertices in the order of recording, and the parts that show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

# What a vertex is: an operation, what several backwards give, or one of the kinds of leaves.
Kind: TypeAlias = Literal["operation", "gradient", "param", "constant", "input", "state", "number"]
# The title of a box of operations that have nothing in common.
MIXED = "operations"


@dataclass
class Vertex:
    """One operation or leaf."""

    kind: Kind
    op: str
    inputs: tuple[int, ...] = ()  # their places in the sketch: all stand before it
    name: str = ""
    shape: tuple[int, ...] | None = None  # of a `Value` None
    dtype: str = ""
    value: Any = None  # a number or a small array
    gradient: Any = None
    norm: float | None = None  # of a gradient that is too large to show
    attrs: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    function: str = ""  # the user's, that recorded it
    writes: str = ""  # what the result is stored in when the step ends
    is_result: bool = False

    @property
    def is_leaf(self) -> bool:
        """Whether nothing computed it."""
        return self.kind not in ("operation", "gradient")

    @property
    def type(self) -> str:
        """Dtype and shape as one reads them, such as ``float32 (3, 4)``."""
        return "" if self.shape is None else f"{self.dtype} {self.shape}"


@dataclass
class Sketch:
    """Vertices, each after what it reads, and what the picture says of them all."""

    vertices: list[Vertex]
    title: str
    facts: list[str] = field(default_factory=list)
    is_step: bool = False  # drawn in regions: forward, backward and update
    of_numbers: bool = False  # its vertices are `Value`s

    def __len__(self) -> int:
        return len(self.vertices)

    def operations(self) -> list[int]:
        """Return the places of what is no leaf, in the order of recording."""
        return [i for i, v in enumerate(self.vertices) if not v.is_leaf]

    def readers(self) -> list[list[int]]:
        """Return by whom each vertex is read, each reader once."""
        found: list[list[int]] = [[] for _ in self.vertices]
        for i, vertex in enumerate(self.vertices):
            for x in dict.fromkeys(vertex.inputs):
                found[x].append(i)
        return found


@dataclass(eq=False)  # each is one of its own, and may be a key
class Part:
    """A box, or a frame around parts."""

    members: list[int] = field(default_factory=list)  # what a box draws: operations or a leaf
    title: str = ""  # of a frame or a closed box; none of a box that shows its members
    times: int = 1  # how often a frame repeats, or a box stands side by side
    parts: list[Part] = field(default_factory=list)  # what a frame holds

    @property
    def is_frame(self) -> bool:
        """Whether it is drawn around others."""
        return bool(self.parts)

    @property
    def heading(self) -> str:
        """What stands above a frame."""
        often = f"× {self.times:,}" if self.times > 1 else ""
        return "  ".join(filter(None, (self.title, often)))

    def paths(self) -> list[list[Part]]:
        """Return the way to each box inside, from here on."""
        return [[self, *path] for part in self.parts for path in part.paths()] or [[self]]

    def boxes(self) -> list[Part]:
        """Return all boxes inside, itself if it is one."""
        return [path[-1] for path in self.paths()]

    def box_of(self) -> dict[int, Part]:
        """Return by member the box inside that shows it."""
        return {i: box for box in self.boxes() for i in box.members}

    def all_members(self) -> list[int]:
        """Return the members of all boxes inside."""
        return [i for box in self.boxes() for i in box.members]

    def frames(self) -> list[Part]:
        """Return all frames inside and itself, the outermost first."""
        found = [self] if self.is_frame else []
        for frame in found:  # grows while it is walked
            found += [part for part in frame.parts if part.is_frame]
        return found


@dataclass
class Folded:
    """A sketch as parts."""

    sketch: Sketch
    root: Part
    base: list[int]  # by vertex, the one that is drawn for it, as a rule itself
    inscribed: set[int]  # the leaves that are written into their reader's box

    def alike(self) -> dict[int, list[int]]:
        """Return by vertex that is drawn all that it stands for, in order."""
        found: dict[int, list[int]] = {}
        for vertex, base in enumerate(self.base):
            found.setdefault(base, []).append(vertex)
        return found

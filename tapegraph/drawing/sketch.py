"""What a picture is made of: vertices in the order of recording, whatever they were taken from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# What a vertex is: an operation, what several backwards give, or one of the kinds of leaves.
OPERATION, DERIVATIVE = "operation", "gradient"
PARAMETER, CONSTANT, ARGUMENT, STATE, NUMBER = "param", "constant", "input", "state", "number"


@dataclass
class Vertex:
    """One operation or leaf.

    - kind: `OPERATION`, `DERIVATIVE`, or what kind of leaf it is.
    - op: The name of the operation.
    - inputs: The vertices that it reads, by their place in the sketch; all stand before it.
    - shape: None of a `Value`, which has none.
    - value, gradient: A small array or a number; None where there is none to show.
    - norm: The length of a gradient that is too large to show.
    - function: The user's function that recorded it, or ``""``.
    - writes: What the result is stored in when the step ends.
    """

    kind: str
    op: str
    inputs: tuple[int, ...] = ()
    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    value: Any = None
    gradient: Any = None
    norm: float | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    function: str = ""
    writes: str = ""
    is_result: bool = False

    @property
    def is_leaf(self) -> bool:
        """Whether nothing computed it."""
        return self.kind not in (OPERATION, DERIVATIVE)

    @property
    def type(self) -> str:
        """Dtype and shape as one reads them, such as ``float32 (3, 4)``."""
        return "" if self.shape is None else f"{self.dtype} {self.shape}"


@dataclass
class Sketch:
    """Vertices, each after what it reads, and what the picture says of them all.

    - title: What was drawn.
    - facts: One line each.
    - is_step: Whether it is a whole step, drawn in regions: forward, backward and update.
    - of_numbers: Whether its vertices are `Value`s.
    """

    vertices: list[Vertex]
    title: str
    facts: list[str] = field(default_factory=list)
    is_step: bool = False
    of_numbers: bool = False

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

"""`Numbers`: a straight-line program on floats, in plain columns, as a capture made it."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

import numpy as np

from tapegraph.errors import line_of
from tapegraph.recording.program import scalar_bits
from tapegraph.scalars.arithmetic import GIVEN, NUMBER
from tapegraph.scalars.depths import Levels
from tapegraph.typed import Array

CodePlace = tuple[CodeType, int] | None


class Numbers:
    """A function of vectors, number by number.

    :param kinds: The operation of each number: of `arithmetic.KINDS`, or a leaf.
    :param args: The numbers it is computed from, which come before it; of ``GIVEN`` the position in
        the vectors that a run is given, laid end to end.
    :param constants: Those that are the same in every run.
    :param exports: Which of them a run gives.
    :param given: How many numbers those vectors hold.
    :param places: The code object and offset that recorded each, for messages.
    """

    __slots__ = ("_levels", "args", "constants", "exports", "given", "kinds", "places")

    def __init__(
        self,
        kinds: list[str],
        args: list[tuple[int, ...]],
        constants: dict[int, float],
        exports: list[int],
        given: int,
        places: list[CodePlace],
    ) -> None:
        self.kinds = kinds
        self.args = args
        self.constants = constants
        self.exports = exports
        self.given = given
        self.places = places
        self._levels: Levels | None = None

    @property
    def levels(self) -> Levels:
        """The program as it is run."""
        if self._levels is None:
            self._levels = Levels(self.kinds, self.args, self.constants, self.exports, self.given)
        return self._levels

    def run(self, vectors: Sequence[Array]) -> Array:
        """Return the numbers asked for."""
        return self.levels.run(vectors)

    def __len__(self) -> int:
        return len(self.kinds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self.differs_from(other) is None

    def __hash__(self) -> int:
        return hash((len(self.kinds), tuple(self.exports)))

    def __repr__(self) -> str:
        return f"{len(self.kinds)} numbers"

    def differs_from(self, other: Numbers) -> str | None:
        """Return how another program differs, or None."""
        rows = zip(self.kinds, self.args, other.kinds, other.args, strict=False)
        for i, (kind, args, other_kind, other_args) in enumerate(rows):
            if kind != other_kind or args != other_args:
                return f"{self._described(i)}, and then {other._described(i)}"
            if kind == NUMBER:
                before, after = self.constants[i], other.constants[i]
                if not np.array_equal(scalar_bits([before]), scalar_bits([after])):
                    return f"the number {before!r}, and then {after!r}, in {self._reader(i)}"
        if len(self) != len(other):
            return f"{len(self)} numbers of Values, and then {len(other)}"
        return None if self.exports == other.exports else "other numbers of Values that leave"

    def _described(self, i: int) -> str:
        if self.kinds[i] == GIVEN:
            return "a number from outside"
        if self.kinds[i] == NUMBER:
            return f"the number {self.constants[i]!r} in {self._reader(i)}"
        place = self.places[i]
        return f"{self.kinds[i]} of Values" + (f" at {line_of(*place)}" if place else "")

    def _reader(self, i: int) -> str:
        for j in range(i + 1, len(self)):
            if i in self.args[j] and self.kinds[j] != GIVEN:
                return self._described(j)
        return "the result"

"""Draws as operations: from a position in the stream to numbers, and to the position after them.

Where the numbers of a program decide how much it draws, in a branch or a loop, it passes a position
on from draw to draw: six words of 64 bits, the state of NumPy's PCG64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from tapegraph.errors import sentence
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.scopes import Scope, Setting
from tapegraph.typed import Array

_WORD = (1 << 64) - 1

# The generator that is drawn from in place of the shared one.
GENERATOR: Setting[np.random.Generator | None] = Setting("tapegraph_generator", default=None)


def packed(state: Mapping[str, Any]) -> Array:
    """Return a state of PCG64 as a position."""
    a, b = state["state"]["state"], state["state"]["inc"]
    words = (a >> 64, a & _WORD, b >> 64, b & _WORD, state["has_uint32"], state["uinteger"])
    return np.array(words, np.uint64).view(np.int64)


def unpacked(position: Array) -> dict[str, Any]:
    """Return the state of PCG64 at a position."""
    words = np.ascontiguousarray(position).view(np.uint64).tolist()
    return {
        "bit_generator": "PCG64",
        "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
        "has_uint32": words[4],
        "uinteger": words[5],
    }


def drawn_from(state: Mapping[str, Any], draw: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the result of a draw from a state of PCG64, and the next state."""
    bits: Any = np.random.PCG64(0)
    bits.state = state
    with Scope(GENERATOR, np.random.Generator(bits)):
        return draw(), bits.state


class RandomDraw:
    """A draw as an attribute: equal to another that gives the same numbers at the same position."""

    def __init__(
        self, op: str, draw: Callable[[], Any], dtype: Any, by: Mapping[str, Any], position: Array
    ) -> None:
        self.op = op
        self.dtype = np.dtype(dtype)
        self._draw = draw
        self.shape = self.at(position)[0].shape
        self._key = (op, self.dtype, self.shape, tuple(by.items()))

    def at(self, position: Array) -> tuple[Array, Array]:
        """Return the numbers at a position, and the next position."""
        numbers, state = drawn_from(unpacked(position), self._draw)
        return np.asarray(numbers, self.dtype), packed(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomDraw) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return self.op


def _vjp(needs: object, g: object, y: object, *inputs: object, **attrs: object) -> list[Any]:
    return [None]


def _jvp(moving: object, y: object, *inputs: object, **attrs: object) -> tuple[None, None]:
    return None, None


def refuse_examples(*_: object) -> NoReturn:
    """Refuse to draw as often as each of many examples says: no one position comes after that."""
    text = (
        "in a branch or a loop some examples may draw more often than others. Draw before it, and "
        "pass the numbers in."
    )
    raise RuntimeError(sentence("vmap", text))


RANDOM_DRAW = Op(
    "random_draw",
    lambda position, *, random: random.at(position),
    several=True,
    rules=Rules(_vjp, _jvp, None, _vjp, refuse_examples),
)

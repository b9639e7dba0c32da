"""Draws in functions that run once for many: as operations, and those of other generators."""

from __future__ import annotations

import dis
import functools
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

import numpy as np

from tapegraph.errors import BETWEEN, ORIGINS, sentence, warn
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.scopes import Scope, Setting
from tapegraph.typed import Array

# Where the numbers of a program decide how much it draws, in a branch or a loop, it passes a
# position in the stream on from draw to draw: six words of 64 bits, the state of NumPy's PCG64.
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


# Draws of NumPy's and Python's generators in the body of a loop or a function under `tg.vmap`,
# which run once: such a number would be the same in every iteration or example.

# The number of objects that a walk looks at, and of parts of a list or dict.
_MOST, _MOST_PARTS = 256, 32
_STATES: dict[str, Callable[[Any], Any]] = {
    "Generator": lambda x: x.bit_generator.state,
    "RandomState": lambda x: x.get_state(legacy=False),
    "Random": lambda x: x.getstate(),
}
_EMPTY = CellType()
_MAKERS = frozenset(("default_rng", "RandomState", "Random"))
_BETWEEN_NAME_AND_CALL = ("PUSH_NULL", "PRECALL", "CACHE")
_FIX = "Draw with tg.random, or before the call and pass the numbers."


@contextmanager
def no_foreign_draws(op: str, f: object) -> Iterator[None]:
    """Raise at the end if a generator that a function names has drawn inside.

    Warn of one that it makes without a seed: nothing sees its draws, which would be others each
    time. Those of one with a seed are the same each time in a Python loop too.
    """
    before = [(x, read, pickle.dumps(read(x))) for x, read in _generators(op, f)]
    yield
    for x, read, state in before:
        if pickle.dumps(read(x)) != state:
            kind = type(x)
            name = f"{kind.__module__.partition('.')[0]}'s {kind.__name__}"
            text = f"the function runs once, so {name} would draw the same in every run. {_FIX}"
            raise RuntimeError(sentence(op, text))


@functools.lru_cache(1024)
def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names of globals and attributes in some code and the functions inside."""
    inside = [name for part in code.co_consts if type(part) is CodeType for name in _names(part)]
    return tuple(dict.fromkeys((*code.co_names, *inside)))


@functools.lru_cache(1024)
def _unseeded(code: CodeType) -> str:
    """Return the name by which some code makes a generator without a seed, or ``""``."""
    for part in code.co_consts:
        if type(part) is CodeType and (name := _unseeded(part)):
            return name
    if _MAKERS.isdisjoint(code.co_names):
        return ""
    steps = [x for x in dis.get_instructions(code) if x.opname not in _BETWEEN_NAME_AND_CALL]
    return next(
        (
            name.argval
            for name, call in itertools.pairwise(steps)
            if name.argval in _MAKERS and call.opname.startswith("CALL") and not call.arg
        ),
        "",
    )


def _is_users(x: Any) -> bool:
    return type(x) is FunctionType and ORIGINS[x.__code__.co_filename] != BETWEEN


def _may_draw(x: Any) -> bool:
    """Return whether an object is no module, or the user's, or one of generators."""
    if type(x) is not ModuleType or x.__name__ in ("numpy.random", "random"):
        return True
    file = getattr(x, "__file__", None)
    return file is not None and ORIGINS[file] != BETWEEN


def _generators(op: str, f: object) -> list[tuple[Any, Callable[[Any], Any]]]:
    """Return the generators that a function reaches, each with the function of its state."""
    found: dict[int, tuple[Any, Callable[[Any], Any]]] = {}
    left: list[tuple[Any, tuple[str, ...]]] = [(f, ())]  # each with the names that code reads of it
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for x, names in left:  # grows while it is walked
        if (id(x), names) in seen or len(seen) > _MOST:
            continue
        seen.add((id(x), names))
        kind = type(x)
        if kind is FunctionType:
            names, space = (_names(x.__code__), x.__globals__) if _is_users(x) else ((), {})
            if names and (maker := _unseeded(x.__code__)):
                text = (
                    f"the function runs once, and {x.__name__} calls {maker}() without a seed: "
                    f"its numbers would be the same in every run. {_FIX}"
                )
                warn(sentence(op, text), UserWarning)
            cells = (cell.cell_contents for cell in x.__closure__ or () if cell != _EMPTY)
            left += [(value, names) for value in (*cells, *(x.__defaults__ or ()))]
            left += [(space[name], names) for name in names if name in space]
            left.append((getattr(x, "__wrapped__", None), ()))
        elif kind in (MethodType, BuiltinMethodType):  # as NumPy's functions are
            function = getattr(x, "__func__", None)
            of = _names(function.__code__) if type(function) is FunctionType else ()
            left += [(function, ()), (x.__self__, of)]
        elif kind.__name__ in _STATES and kind.__module__.startswith(("numpy.random", "random")):
            found[id(x)] = x, _STATES[kind.__name__]
        elif x is np:
            if "random" in names:
                left.append((np.random, names))  # which NumPy loads when asked
        elif kind is functools.partial:
            left += [(part, ()) for part in (x.func, *x.args, *x.keywords.values())]
        elif kind in (list, tuple, dict):
            parts = x.values() if kind is dict else x
            left += [(part, names) for part in itertools.islice(parts, _MOST_PARTS)]
        elif (own := getattr(x, "__dict__", None)) and _may_draw(x):
            left += [(own[name], names) for name in (*names, "__wrapped__") if name in own]
            methods: Iterator[Any] = (getattr(kind, name, None) for name in (*names, "__call__"))
            left += [(MethodType(m, x), ()) for m in methods if _is_users(m)]
    return list(found.values())

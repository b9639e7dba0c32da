"""Which chains of a plan are made block by block: those where that was measured to be faster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegraph.engines.tuner import CLOCK, POLICY
from tapegraph.fallback.plan.chains import SAME, Blocks, Chain, Stretch
from tapegraph.fallback.plan.ir import Call, Held, mapped
from tapegraph.fallback.plan.lines import Lines
from tapegraph.typed import Array

# Arrays of fewer bytes stay in the cache as they are.
SMALLEST = 1 << 18
# Of fewer calls the last would hardly read what the first wrote.
FEWEST = 3
# How many bytes of an array of full size a block may hold. Shorter ones cost more calls than they
# save: one takes as long as the work on some thousand elements.
SIZES = (1 << 17, 1 << 19)
# So many elements at a time, at most, NumPy's vector units take; a rest may be computed otherwise.
LANES = 64
# Each way is run so often, or until so many seconds have passed.
ROUNDS, SECONDS = 5, 0.05


def by_blocks(lines: list[Call], results: Sequence[Held]) -> tuple[list[Call], int]:
    """Return a plan with its chains in blocks where that is faster, and what they take of memory.

    Parameters
    ----------
    lines : list of Call
        The plan.
    results : sequence of Held
        What leaves it.
    """
    spread = {
        id(call.results[0]): call.args[0]
        for call in lines
        if call.function is np.broadcast_to and isinstance(call.args[0], Held)
    }
    readers: dict[int, list[Call]] = {}
    for call in lines:
        for held in call.reads:
            readers.setdefault(id(held), []).append(call)
    free: dict[int, list[Array]] = {}
    known: dict[str, int] = {}
    found: list[Call] = []
    number = 0
    while number < len(lines):
        stretch = _stretch(lines, number, spread)
        if stretch is None:
            found.append(lines[number])
            number += 1
            continue
        read = stretch.read_by_others(readers, results)
        blocks = _in_blocks(stretch.chain, read, known, free)
        if blocks is None:
            found.extend(stretch.lines)
        else:
            views = [c for c in stretch.chain.calls if not c.into and id(c.results[0]) in read]
            found.extend([*stretch.before, blocks, *views, *stretch.after])
        number += len(stretch.lines)
    return found, sum(block.nbytes for blocks in free.values() for block in blocks)


def _stretch(lines: list[Call], start: int, spread: dict[int, Held]) -> Stretch | None:
    """Return the stretch that begins at a line with a chain worth to measure, or None."""
    if _largest(lines[start]) < SMALLEST:
        return None
    stretch = Stretch(lines, start, spread)
    chain = stretch.chain
    large = [call for call in chain.calls if _largest(call) >= SMALLEST]
    if len(large) < FEWEST or chain.calls[0] is not lines[start] or chain.shape[-1] == 1:
        return None
    return stretch


def _largest(call: Call) -> int:
    return max(getattr(held.value, "nbytes", 0) for held in (*call.reads, *call.results))


def _in_blocks(
    chain: Chain, read: set[int], known: dict[str, int], free: dict[int, list[Array]]
) -> Blocks | None:
    """Return a chain in the blocks in which it is fastest, or None if it is so without."""
    total = math.prod(chain.shape[: chain.axes])
    whole = Trial(Blocks(chain, total, read, {}))
    key = whole.key
    if key not in known:
        trials = [whole, *(Trial(Blocks(chain, rows, read, {})) for rows in _choices(chain))]
        right = [trial for trial in trials if trial.is_right()]  # and each has touched its memory
        known[key] = fastest(right).blocks.rows if whole in right else total
    rows = known[key]
    if rows == total or not Trial(Blocks(chain, rows, read, {})).is_right():
        return None
    return Blocks(chain, rows, read, free)


def _choices(chain: Chain) -> Iterator[int]:
    """Yield the lengths of blocks to try, each once, the shortest first."""
    total = math.prod(chain.shape[: chain.axes])
    width = math.prod(chain.shape[chain.axes :])
    lines = max(1, width // chain.shape[-1]) if chain.axes < len(chain.shape) else 0
    step = math.lcm(LANES // math.gcd(width, LANES), LANES // math.gcd(lines, LANES))
    itemsize = max(c.results[0].value.itemsize for c in chain.calls)
    tried = set()
    for size in SIZES:
        most = max(1, size // (width * itemsize) // step)
        rows = next((n * step for n in range(most, 0, -1) if total % (n * step) == 0), total)
        if rows < total and rows not in tried:
            tried.add(rows)
            yield rows


class Trial:
    """A chain in blocks, run on the recorded values.

    Attributes
    ----------
    blocks : Blocks
        What is tried.
    key : str
        What it shares with chains of the same calls on arrays of the same types.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        lines = Lines()
        text = lines.function(blocks, "block")
        exec(compile(text, "<tapegraph chain>", "exec"), lines.names)
        self._block = lines.names["block"]
        self._results = [np.empty_like(held.value) for held, _, _ in blocks.made]
        cut = [blocks.cut(h.value, kind) for h, _, kind in blocks.given if kind != SAME]
        made = zip(self._results, blocks.made, strict=True)
        self._parts = [*zip(*cut, *(blocks.cut(a, kind) for a, (_, _, kind) in made), strict=True)]
        self._same = [blocks.cut(h.value, kind)[0] for h, _, kind in blocks.given if kind == SAME]

    def run(self) -> None:
        """Make all the calls."""
        for part in self._parts:
            self._block(*part, *self._same)

    def is_right(self) -> bool:
        """Tell whether the results are, to the bit, those of the calls on whole arrays."""
        self.run()
        pairs = zip(self._results, self.blocks.made, strict=True)
        return all(a.tobytes() == held.value.tobytes() for a, (held, _, _) in pairs)

    @property
    def key(self) -> str:  # noqa: D102 - above
        numbers: dict[int, str] = {}

        def name(x: Any) -> Any:
            return numbers.setdefault(id(x), f"#{len(numbers)}") if isinstance(x, Held) else x

        calls = [
            (c.name, mapped(name, c.args), mapped(name, c.kwargs), name(c.results[0]))
            for c in self.blocks.lines
        ]
        given = [(name(leaf), k, h.value.shape, h.value.dtype) for h, leaf, k in self.blocks.given]
        return repr((calls, given, [(name(found), kind) for _, found, kind in self.blocks.made]))


def fastest(trials: Sequence[Trial]) -> Trial:
    """Return the one that takes least time, and the first unless another is clearly faster."""
    seconds = [float("inf")] * len(trials)
    start = CLOCK.now()
    for _ in range(ROUNDS):
        for place, trial in enumerate(trials):
            before = CLOCK.now()
            trial.run()
            seconds[place] = min(seconds[place], CLOCK.now() - before)
        if CLOCK.now() - start > SECONDS:
            break
    best = min(range(len(trials)), key=seconds.__getitem__)
    return trials[best if seconds[best] <= POLICY.edge * seconds[0] else 0]

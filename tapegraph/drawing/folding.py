"""Fold a large graph: draw repeated parts once, and runs of operations as one box.

Operations stand in topological order, so any stretch is one part without making a cycle. Steps,
each taken only until there are few enough boxes:

1. write leaves into the box that reads them;
2. draw a repeated stretch once, in a frame with the count;
3. make one box of each stretch that a function of several calls recorded;
4. make one box of a chain that nothing else reads, with a line per operation;
5. make one box of operations of one kind at one depth, and at last of whole stretches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from tapegraph.drawing.sketch import Sketch

# The title of a box of operations that have nothing in common.
MIXED = "operations"
# A function's stretch of so many operations is worth a box.
_STRETCH = 3
# Into so many boxes a frame is cut at least.
_LEFT = 3
# A repetition must spare so many boxes, and such a share of all. What is tried at most, for a graph
# without any: comparisons, and repetitions of what is alike.
_SPARED, _SHARE = 4, 1 / 64
_WORK, _CANDIDATES = 50_000_000, 256
_REGIONS = ("forward", "backward", "update")


@dataclass(eq=False)  # compared by identity, and may be a key
class Part:
    """A box, or a frame around parts."""

    members: list[int] = field(default_factory=list)  # a box's operations or leaf
    title: str = ""  # of a frame or a closed box; none of a box that shows its members
    times: int = 1  # how often a frame repeats, or a box stands side by side
    parts: list[Part] = field(default_factory=list)  # a frame's content

    @property
    def is_frame(self) -> bool:
        return not self.members

    @property
    def heading(self) -> str:
        often = f"× {self.times:,}" if self.times > 1 else ""
        return "  ".join(filter(None, (self.title, often)))

    def boxes(self) -> list[Part]:
        return [box for part in self.parts for box in part.boxes()] if self.is_frame else [self]

    def all_members(self) -> list[int]:
        return [i for box in self.boxes() for i in box.members]

    def frames(self) -> list[Part]:
        return [self, *(f for part in self.parts if part.is_frame for f in part.frames())]

    def around(self) -> dict[Part, list[Part]]:
        found: dict[Part, list[Part]] = {}
        for frame in self.frames():
            for box in frame.boxes():
                found.setdefault(box, []).append(frame)
        return found


class Folding:
    """A sketch as parts, folded until there are about that many boxes.

    :ivar base: By vertex, the one drawn for it, usually itself.
    :ivar alike: By drawn vertex, all that it stands for, in order.
    :ivar inscribed: The leaves written into their reader's box.
    """

    def __init__(self, sketch: Sketch, most: int) -> None:
        self.sketch = sketch
        self._most = most
        self._vertices = sketch.vertices
        self._readers = sketch.readers()
        self._stages = self._find_stages()
        self.base = list(range(len(self._vertices)))
        self.alike = {i: [i] for i in self.base}
        self.inscribed = {i for i, v in enumerate(self._vertices) if v.kind == "number"}
        operations = [i for i in self.base if not self._vertices[i].is_leaf]
        operations.sort(key=self._stages.__getitem__)
        backwards: dict[tuple[int, ...], int] = {}
        for i in operations:
            if self._vertices[i].kind == "gradient":  # one box for all that one backward gives
                self._merge(backwards.setdefault(self._vertices[i].inputs, i), i)
        self.root = Part(parts=[Part([i]) for i in operations if self.base[i] == i])
        if sketch.is_step:

            def title(part: Part) -> str:
                stage = self._stages[part.members[0]]
                return _REGIONS[stage if stage < 2 else 2 - stage % 2]

            runs = [(name, list(run)) for name, run in groupby(self.root.parts, title)]
            regions = [
                Part(parts[0].members, name)
                if name == "backward" and len(parts) == 1
                else Part(title=name, parts=parts)
                for name, parts in runs
            ]
            if len(regions) > 1:
                self.root.parts = regions
        if len(self._vertices) - len(self.inscribed) > most:
            # Leaves that one operation reads go into its box.
            for leaf, readers in enumerate(self._readers):
                vertex = self._vertices[leaf]
                if vertex.is_leaf and not vertex.is_result and vertex.kind != "input":
                    if sketch.is_step or len({self.base[r] for r in readers}) <= 1:
                        self.inscribed.add(leaf)
            if sketch.of_numbers:  # whose graph is wide; one of arrays is long
                self._levels()
            self._repeats()
            self._functions()
            self._chains()
            self._levels()
            self._cut()
            # No more leaves are drawn than boxes.
            leaves = [i for i, v in enumerate(self._vertices) if v.is_leaf]
            if len({self.base[i] for i in leaves} - self.inscribed) > most:
                self.inscribed.update(leaves)
        for group in self.alike.values():
            group.sort()
        self._add_leaves()

    def _merge(self, mine: int, theirs: int) -> None:
        mine, theirs = self.base[mine], self.base[theirs]
        if mine != theirs:
            for i in self.alike[theirs]:
                self.base[i] = mine
            self.alike[mine] += self.alike.pop(theirs)

    def _surplus(self) -> int:
        return len(self.root.boxes()) - self._most

    def _links(self, parts: list[Part]) -> tuple[list[set[int]], list[set[int]]]:
        """Return the places of the parts that each part reads, and of its readers; -1 elsewhere."""
        place = {i: n for n, part in enumerate(parts) for i in part.all_members()}
        drawn = [place.get(base, -1) for base in self.base]
        reads: list[set[int]] = [set() for _ in parts]
        read_by: list[set[int]] = [set() for _ in parts]
        for reader, vertex in zip(drawn, self._vertices, strict=True):
            for x in vertex.inputs:
                if drawn[x] != reader and x not in self.inscribed:
                    if reader >= 0:
                        reads[reader].add(drawn[x])
                    if drawn[x] >= 0:
                        read_by[drawn[x]].add(reader)
        return reads, read_by

    # Regions of a step

    def _find_stages(self) -> list[int]:
        """Return twice the number of backwards before each vertex; odd numbers are inside one."""
        stages: list[int] = []
        for vertex in self._vertices:
            stage = max((stages[i] for i in vertex.inputs), default=0)
            stages.append(stage + (stage % 2 != (vertex.kind == "gradient")) * bool(vertex.inputs))
        last = max(stages, default=0)
        for i in reversed(range(len(stages))):
            vertex = self._vertices[i]
            if vertex.kind == "gradient" or vertex.is_result or vertex.is_leaf:
                continue
            latest = [stages[r] - (self._vertices[r].kind == "gradient") for r in self._readers[i]]
            wanted = min(latest, default=last if vertex.writes else stages[i])
            stages[i] = max(stages[i], wanted - wanted % 2)
        return stages

    # 2. Repetitions

    def _repeats(self) -> None:
        """Fold repetitions: in the longest frame first, and there the one that saves most."""
        done: set[Part] = set()
        while self._surplus() > 0 and (left := [f for f in self.root.frames() if f not in done]):
            frame = max(left, key=lambda f: len(f.parts))
            if not self._repeat_in(frame):
                done.add(frame)
        # If later rounds read a result in its place, the first round's leaf is drawn.
        for base, vertex in zip(self.base, self._vertices, strict=True):
            for mine, theirs in zip(self._vertices[base].inputs, vertex.inputs, strict=False):
                if not self._vertices[theirs].is_leaf:
                    self.inscribed.discard(mine)

    def _repeat_in(self, frame: Part) -> bool:
        """Fold one repetition: of equal types, except in updates."""
        parts = frame.parts
        exact = self._stages[parts[0].all_members()[0]] < 2
        kinds = [self._kind(part, exact) for part in parts]
        found = _find_repetition(kinds, *self._links(parts))
        if found is None:
            return False
        start, period, times = found
        end = start + period * times
        body = parts[start : start + period]
        for n in range(start + period, end, period):
            for one, other in zip(body, parts[n:end], strict=False):
                self._stands_for(one, other)
        if period == 1 and not body[0].is_frame:
            body[0].times *= times
        else:
            body = [Part(times=times, parts=body)]
        parts[start:end] = body
        return True

    def _kind(self, part: Part, exact: bool) -> object:
        if part.is_frame:
            return (part.times, *(self._kind(p, exact) for p in part.parts))
        vertex = self._vertices[part.members[0]]
        return vertex.op, len(vertex.inputs), part.times, vertex.type if exact else ""

    def _stands_for(self, one: Part, other: Part) -> None:
        """Draw one part for another like it, with the leaves that only that one reads."""
        pairs = list(zip(one.all_members(), other.all_members(), strict=True))
        own = {mine for mine, _ in pairs}
        for mine, theirs in pairs:
            self._merge(mine, theirs)
        for mine, theirs in pairs:
            inputs = zip(self._vertices[mine].inputs, self._vertices[theirs].inputs, strict=True)
            for leaf, gone in inputs:
                if self._is_read_by(leaf, own) and self._is_read_by(gone, own):
                    self._merge(leaf, gone)

    def _is_read_by(self, leaf: int, operations: set[int]) -> bool:
        if not self._vertices[leaf].is_leaf or leaf in self.inscribed:
            return False
        return {self.base[r] for r in self._readers[leaf]} <= operations

    # 3. Functions

    def _functions(self) -> None:
        kinds: dict[object, list[tuple[Part, list[Part]]]] = {}
        for frame in self.root.frames():
            for name, run in groupby(frame.parts, self._function_of):
                parts = list(run)
                if name and _STRETCH <= len(parts) < len(frame.parts):
                    ops = (self._vertices[part.members[0]].op for part in parts)
                    kinds.setdefault((name, *ops), []).append((frame, parts))
        for stretches in kinds.values():
            if self._surplus() > 0 and len(stretches) > 1:
                for frame, parts in stretches:
                    at = frame.parts.index(parts[0])
                    members = [part.members[0] for part in parts]
                    box = Part(members, self._function_of(parts[0]))
                    frame.parts[at : at + len(parts)] = [box]

    def _function_of(self, part: Part) -> str:
        only = len(part.members) == 1 and part.times == 1
        return self._vertices[part.members[0]].function if only else ""

    # 4. Chains

    def _chains(self) -> None:
        boxes, around = self.root.boxes(), self.root.around()
        reads, read_by = self._links(boxes)
        gone: set[Part] = set()
        for n, part in enumerate(boxes):
            before = reads[n].pop() if len(reads[n]) == 1 else -1
            one = boxes[before]
            if before >= 0 and read_by[before] == {n} and around[one] == around[part]:
                last = self._vertices[one.members[-1]]
                titled = part.title or one.title or part.times != one.times
                if not (titled or last.is_result or last.writes):
                    one.members += part.members
                    part.members = one.members
                    gone.add(one)
        for frame in self.root.frames():
            frame.parts = [part for part in frame.parts if part not in gone]

    # 5. Still too many boxes

    def _levels(self) -> None:
        for frame in self.root.frames():
            if self._surplus() <= 0 or any(part.is_frame for part in frame.parts):
                continue
            reads, _ = self._links(frame.parts)
            depth: list[int] = []
            first: dict[tuple[int, str, tuple[str, ...]], Part] = {}
            for n, part in enumerate(frame.parts):
                depth.append(1 + max((depth[m] for m in reads[n] if 0 <= m < n), default=0))
                ops = tuple(self._vertices[i].op for i in part.members)
                one = first.setdefault((depth[n], part.title, ops), part)
                if one is not part:
                    for mine, theirs in zip(one.members, part.members, strict=True):
                        self._merge(mine, theirs)
                    one.times += part.times
            frame.parts = [first[kind] for kind in sorted(first, key=lambda kind: kind[0])]
        if self.sketch.of_numbers:
            # One leaf stands for all of its kind that the same boxes read.
            known: dict[object, int] = {}
            box_of = {i: box for box in self.root.boxes() for i in box.members}
            for leaf, readers in enumerate(self._readers):
                if self._vertices[leaf].is_leaf and leaf not in self.inscribed:
                    by = frozenset(box_of.get(self.base[r]) for r in readers)
                    self._merge(known.setdefault((self._vertices[leaf].kind, by), leaf), leaf)

    def _cut(self) -> None:
        while (surplus := self._surplus()) > 0:
            frame = max(self.root.frames(), key=lambda f: len(f.parts))
            length = len(frame.parts)
            stretches = np.array_split(np.arange(length), max(_LEFT, length - surplus))
            if len(stretches) >= length:
                return
            parts = [[frame.parts[i] for i in stretch] for stretch in stretches]
            frame.parts = [
                some[0]
                if len(some) == 1
                else Part([i for part in some for i in part.all_members()], MIXED)
                for some in parts
            ]

    # Leaves that are boxes

    def _add_leaves(self) -> None:
        """Draw a leaf before the first box that reads it, outside a loop if all rounds share it."""
        around = self.root.around()
        order = {box: n for n, box in enumerate(around)}
        box_of = {i: box for box in around for i in box.members}
        before: dict[Part, list[Part]] = {}
        for leaf, alike in self.alike.items():
            if not self._vertices[leaf].is_leaf or leaf in self.inscribed:
                continue
            readers = {box_of[self.base[r]] for i in alike for r in self._readers[i]}
            if not readers:
                self.root.parts.append(Part([leaf], times=len(alike)))
                continue
            first = min(readers, key=order.__getitem__)
            frames = [f for f in around[first] if all(f in around[box] for box in readers)]
            while (rounds := math.prod(f.times for f in frames)) > len(alike):
                frames.pop()
            inside = [*around[first], first][len(frames)]
            before.setdefault(inside, []).append(Part([leaf], times=len(alike) // rounds))
        for frame in self.root.frames():
            frame.parts = [p for part in frame.parts for p in (*before.get(part, ()), part)]


# Finding repetitions


def _find_repetition(
    kinds: Sequence[object], reads: Sequence[set[int]], read_by: Sequence[set[int]]
) -> tuple[int, int, int] | None:
    """Return start, period and count of the repetition that saves most boxes, or None."""

    def handed_on(start: int) -> int:
        return sum(
            any(r >= start + period for r in read_by[n]) for n in range(start, start + period)
        )

    for _, minus, begin, length in sorted(_runs(kinds), reverse=True)[:_CANDIDATES]:
        period = -minus
        start = min(range(begin, begin + length % period + 1), key=handed_on)
        places = range(start, start + length // period * period)
        if _is_loop(places, period, reads, read_by):
            return start, period, length // period
    return None


def _runs(kinds: Sequence[object]) -> list[tuple[int, int, int, int]]:
    """Return saving, negated period, start and length of each run that repeats."""
    numbers: dict[object, int] = {}
    tokens = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds])
    found = []
    n = len(tokens)
    least = max(_SPARED, int(n * _SHARE))
    for period in range(1, min(n // 2, _WORK // max(n, 1)) + 1):
        same = tokens[:-period] == tokens[period:]
        ends = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        starts, lengths = ends[::2], ends[1::2] - ends[::2] + period
        spared = (lengths // period - 1) * period
        for i in np.flatnonzero(spared >= least).tolist():  # two rounds at least
            found.append((int(spared[i]), -period, int(starts[i]), int(lengths[i])))
    return found


def _is_loop(
    places: range, period: int, reads: Sequence[set[int]], read_by: Sequence[set[int]]
) -> bool:
    """Return whether rounds are wired alike, in a row or side by side."""

    def wired(begin: int, low: int) -> tuple[frozenset[int], ...]:
        stretch = range(begin + low, begin + low + period)
        parts = range(begin, begin + period)
        return tuple(frozenset(x - begin for x in reads[n] if x in stretch) for n in parts)

    inside = {wired(begin, 0) for begin in places[::period]}
    before = {wired(begin, -period) for begin in places[period::period]}
    if len(inside) > 1 or len(before) > 1:
        return False
    return any(before.pop()) or all(
        len({frozenset(read_by[n].difference(places)) for n in places[offset::period]}) == 1
        for offset in range(period)
    )

"""Folding: what is drawn once for many, and what is drawn as one box.

The operations of a sketch stand in an order in which each follows what it reads. So any stretch
of that order can be taken for one part, and what is left is still without a circle: a loop of the
user's is a stretch that repeats, a function a stretch that it recorded. What would be too many
boxes is folded step by step, and no further than needed:

1. leaves are written into the box that reads them;
2. what repeats is drawn once, in a frame that says how often;
3. a stretch that one function recorded is one box;
4. operations that follow each other, and nobody else reads, are the lines of one box;
5. operations of one kind at one depth are one box, and at last whole stretches are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import numpy as np

from tapegraph.drawing.parts import Folded, Part, add_leaves, closed
from tapegraph.drawing.repetitions import find_repetition
from tapegraph.drawing.sketch import ARGUMENT, DERIVATIVE, NUMBER, Sketch

# So many repetitions are folded at most.
_FOLDS = 256
# A function's stretch of so many operations is worth a box.
_STRETCH = 3
# Into so many boxes a frame is cut at least.
_LEFT = 3
_REGIONS = ("forward", "backward", "update")


def fold(sketch: Sketch, most: int) -> Folded:
    """Fold a sketch until it has about so many boxes at most."""
    return _Folding(sketch, most).folded()


class _Folding:
    def __init__(self, sketch: Sketch, most: int) -> None:
        self.sketch = sketch
        self.most = most
        self.vertices = sketch.vertices
        self._parent = list(range(len(sketch)))
        self.readers = sketch.readers()
        self.stages = self._stages()
        operations = sorted(sketch.operations(), key=self.stages.__getitem__)  # a stable sort
        self._merge_derivatives(operations)
        self.root = Part(parts=[self._of(i) for i in operations if self._base(i) == i])
        self.inscribed = {i for i, v in enumerate(self.vertices) if v.kind == NUMBER}

    def folded(self) -> Folded:
        drawn = len(self.vertices) - len(self.inscribed)
        if self.sketch.is_step:
            self._into_regions()
        if drawn > self.most:
            self._inscribe()
            for step in self._steps():
                step(self.most)
            self._bound_leaves(self.most)
        base = list(map(self._base, range(len(self.vertices))))
        add_leaves(self.sketch, self.root, base, self.inscribed)
        box = {i: part for part in self.root.boxes() for i in part.members}
        return Folded(self.sketch, self.root, base, box, self.inscribed)

    def _steps(self) -> list[Callable[[int], None]]:
        """Return how to fold, gently first: a graph of numbers is wide, one of arrays is long."""
        last = [self._cut_updates, self._functions, self._levels, self._cut]
        if self.sketch.of_numbers:
            return [self._levels, self._repeats, self._chains, *last]
        return [self._repeats, self._subroutines, self._chains, *last]

    def _of(self, i: int) -> Part:
        return Part([i])

    def _base(self, i: int) -> int:
        """Return the vertex that is drawn for one."""
        parent = self._parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def _merge(self, mine: int, theirs: int) -> None:
        """Draw one vertex for another, and for all that this one was drawn for."""
        self._parent[self._base(theirs)] = self._base(mine)

    def _count(self) -> int:
        return len(self.root.boxes())

    # Regions of a step

    def _stages(self) -> list[int]:
        """Return of each vertex how many backwards it comes after, twice; odd inside of one.

        What only an update reads belongs to it, though it reads no gradient itself.
        """
        stages: list[int] = []
        for vertex in self.vertices:
            stage = max((stages[i] for i in vertex.inputs), default=0)
            stages.append(stage + (stage % 2 != (vertex.kind == DERIVATIVE)) * bool(vertex.inputs))
        last = max(stages, default=0)
        for i in range(len(stages) - 1, -1, -1):
            vertex, readers = self.vertices[i], self.readers[i]
            if vertex.kind == DERIVATIVE or vertex.is_result or vertex.is_leaf:
                continue
            latest = [stages[r] - (self.vertices[r].kind == DERIVATIVE) for r in readers]
            wanted = min(latest, default=last if vertex.writes else stages[i])
            stages[i] = max(stages[i], wanted - wanted % 2)
        return stages

    def _merge_derivatives(self, operations: Sequence[int]) -> None:
        """Let one box stand for all that one backward gives."""
        first: dict[tuple[int, ...], int] = {}
        for i in operations:
            vertex = self.vertices[i]
            if vertex.kind == DERIVATIVE:
                y, _, *seed = vertex.inputs
                self._merge(first.setdefault((y, *seed), i), i)

    def _into_regions(self) -> None:
        parts: list[Part] = []
        for part in self.root.parts:
            stage = self.stages[part.members[0]]
            title = _REGIONS[stage] if stage < 2 else _REGIONS[2 - stage % 2]
            if not parts or parts[-1].title != title:
                parts.append(Part(title=title))
            parts[-1].parts.append(part)
        for frame in parts:
            if frame.title == "backward" and len(frame.parts) == 1:
                frame.members, frame.parts = frame.parts[0].members, []
        if len(parts) > 1:
            self.root.parts = parts

    # 1. Leaves

    def _inscribe(self) -> None:
        """Write leaves that one operation reads into its box."""
        for leaf, readers in enumerate(self.readers):
            vertex = self.vertices[leaf]
            if not vertex.is_leaf or vertex.is_result:
                continue
            bases = {self._base(r) for r in readers if self.vertices[r].kind != DERIVATIVE}
            if vertex.kind != ARGUMENT and (len(bases) <= 1 or self.sketch.is_step):
                self.inscribed.add(leaf)

    # 2. Repetitions

    def _repeats(self, most: int) -> None:
        """Fold what repeats, in the longest frame first, and there what spares most."""
        done: set[int] = set()
        for _ in range(_FOLDS):
            frames = [frame for frame in self.root.frames() if id(frame) not in done]
            if self._count() <= most or not frames:
                break
            frame = max(frames, key=lambda f: len(f.parts))
            if not self._repeat_in(frame):
                done.add(id(frame))
        self._draw_starts()

    def _draw_starts(self) -> None:
        """Draw the leaves that a first round reads where the next ones read what was computed."""
        for i, vertex in enumerate(self.vertices):
            base = self._base(i)
            for mine, theirs in zip(self.vertices[base].inputs, vertex.inputs, strict=False):
                if not self.vertices[theirs].is_leaf:
                    self.inscribed.discard(mine)

    def _repeat_in(self, frame: Part) -> bool:
        """Fold one repetition: of the same types, but in an update of whatever types there are."""
        parts = frame.parts
        exact = self.stages[frame.all_members()[0]] < 2
        found = find_repetition(
            self.sketch, parts, self._base, lambda part: self._token(part, exact)
        )
        if found is None:
            return False
        start, period, times = found
        body = parts[start : start + period]
        for n in range(1, times):
            for one, other in zip(body, parts[start + n * period :], strict=False):
                self._stands_for(one, other)
        if period == 1 and not body[0].is_frame:
            body[0].times *= times
            frame.parts[start : start + times] = body
        else:
            frame.parts[start : start + period * times] = [Part(times=times, parts=body)]
        return True

    def _token(self, part: Part, exact: bool) -> object:
        if part.is_frame:
            return (part.times, *(self._token(p, exact) for p in part.parts))
        vertex = self.vertices[part.members[0]]
        return (
            vertex.op,
            len(vertex.inputs),
            part.times,
            (vertex.dtype, vertex.shape) if exact else (),
        )

    def _stands_for(self, one: Part, other: Part) -> None:
        """Draw one part for another that is like it, with the leaves that only that one reads."""
        for mine, theirs in zip(one.all_members(), other.all_members(), strict=True):
            self._merge(mine, theirs)
        own = set(one.all_members())
        for mine, theirs in zip(one.all_members(), other.all_members(), strict=True):
            pairs = zip(self.vertices[mine].inputs, self.vertices[theirs].inputs, strict=True)
            for leaf, gone in pairs:
                if self._is_only_read_by(leaf, own) and self._is_only_read_by(gone, own):
                    self._merge(leaf, gone)

    def _is_only_read_by(self, leaf: int, operations: set[int]) -> bool:
        if not self.vertices[leaf].is_leaf or leaf in self.inscribed:
            return False
        return all(self._base(r) in operations for r in self.readers[leaf])

    # 3. Functions

    def _subroutines(self, most: int) -> None:
        """Make one box of each stretch of a function that there are several of."""
        if self._count() > most:
            stretches = self._stretches()
            often = Counter(self._kind_of(name, parts) for name, parts in stretches)
            self._close(s for s in stretches if often[self._kind_of(*s)] > 1)

    def _functions(self, most: int) -> None:
        """Make one box of each stretch of a function, the short ones first."""
        left = self._count() - most
        chosen = []
        for name, parts in sorted(self._stretches(), key=lambda s: len(s[1])):
            if left > 0:
                chosen.append((name, parts))
                left -= len(parts) - 1
        self._close(chosen)

    def _close(self, stretches: Iterable[tuple[str, list[Part]]]) -> None:
        """Make one box of each of some stretches."""
        first: dict[int, Part] = {}
        gone: set[int] = set()
        for name, parts in stretches:
            first[id(parts[0])] = closed(parts, name)
            gone.update(map(id, parts[1:]))
        for frame in self.root.frames():
            frame.parts = [first.get(id(p), p) for p in frame.parts if id(p) not in gone]

    def _stretches(self) -> list[tuple[str, list[Part]]]:
        """Return the longest stretches that one function recorded, with its name."""
        found = []
        for frame in self.root.frames():
            for name, run in groupby(frame.parts, self._function_of):
                parts = list(run)
                if name and _STRETCH <= len(parts) < len(frame.parts):
                    found.append((name, parts))
        return found

    def _kind_of(self, name: str, parts: Sequence[Part]) -> object:
        return (name, *(self.vertices[i].op for part in parts for i in part.members))

    def _function_of(self, part: Part) -> str:
        if part.is_frame or part.times > 1 or part.title:
            return ""
        names = {self.vertices[i].function for i in part.members}
        return names.pop() if len(names) == 1 else ""

    # 4. Chains

    def _chains(self, most: int) -> None:
        """Write operations that only the next one reads, and that reads nothing else, as lines."""
        reads, readers = self._links()
        for frame in self.root.frames():
            plain = {id(part): part for part in frame.parts if not part.is_frame}
            gone = set()
            for part in frame.parts:
                before = plain.get(next(iter(reads.get(id(part), ())), 0))
                if before is None or len(reads[id(part)]) != 1 or id(part) not in plain:
                    continue
                if readers[id(before)] == {id(part)} and self._may_follow(part, before):
                    before.members.extend(part.members)
                    part.members = before.members
                    reads[id(part)] = reads[id(before)]
                    gone.add(id(before))
            frame.parts = [part for part in frame.parts if id(part) not in gone]

    def _links(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Return by box what it reads, boxes and leaves, and which boxes read it."""
        box = {i: id(part) for part in self.root.boxes() for i in part.members}
        reads: dict[int, set[int]] = {part: set() for part in box.values()}
        readers: dict[int, set[int]] = {part: set() for part in box.values()}
        for i, vertex in enumerate(self.vertices):
            mine = box.get(self._base(i))
            if mine is None:
                continue
            for x in vertex.inputs:
                theirs = box.get(self._base(x))
                if theirs is not None and theirs != mine:
                    reads[mine].add(theirs)
                    readers[theirs].add(mine)
                elif theirs is None and x not in self.inscribed:
                    reads[mine].add(-x - 1)  # a leaf, which is drawn
        return reads, readers

    def _may_follow(self, part: Part, before: Part) -> bool:
        """Return whether two boxes may be one, of which the latter alone reads the former."""
        if part.title or before.title or part.times != before.times:
            return False
        last = self.vertices[before.members[-1]]
        return not last.is_result and not last.writes

    # 5. What is still too much

    def _levels(self, most: int) -> None:
        """Make one box of the operations of one kind at one depth, frame by frame."""
        for frame in self.root.frames():
            if self._count() <= most:
                return
            plain = [p for p in frame.parts if not p.is_frame]
            if len(plain) != len(frame.parts):
                continue
            depth: dict[int, int] = {}
            by_kind: dict[object, Part] = {}
            place = {self._base(i): part for part in plain for i in part.members}
            for part in plain:
                inside = (
                    depth[id(p)]
                    for i in part.members
                    for x in self.vertices[i].inputs
                    if (p := place.get(self._base(x))) is not None and p is not part
                )
                depth[id(part)] = 1 + max(inside, default=0)
            kept: list[Part] = []
            for part in sorted(plain, key=lambda p: depth[id(p)]):
                ops = tuple(self.vertices[i].op for i in part.members)
                first = by_kind.setdefault((depth[id(part)], part.title, ops), part)
                if first is part:
                    kept.append(part)
                    continue
                for mine, theirs in zip(first.members, part.members, strict=True):
                    self._merge(mine, theirs)
                first.times += part.times
            frame.parts = kept
        if self.sketch.of_numbers:
            self._merge_leaves()

    def _merge_leaves(self) -> None:
        """Let one leaf stand for all of its kind that the same boxes read."""
        box = {i: id(part) for part in self.root.boxes() for i in part.members}
        known: dict[object, int] = {}
        for leaf, readers in enumerate(self.readers):
            if self.vertices[leaf].is_leaf and leaf not in self.inscribed:
                by = frozenset(box.get(self._base(r)) for r in readers)
                self._merge(known.setdefault((self.vertices[leaf].kind, by), leaf), leaf)

    def _bound_leaves(self, most: int) -> None:
        """Draw no more leaves than boxes."""
        for fold in (self._merge_leaves, self._inscribe_all):
            leaves = {self._base(i) for i, v in enumerate(self.vertices) if v.is_leaf}
            if len(leaves - self.inscribed) > most:
                fold()

    def _inscribe_all(self) -> None:
        self.inscribed.update(i for i, v in enumerate(self.vertices) if v.is_leaf)

    def _cut_updates(self, most: int) -> None:
        """Cut the updates of a step first, which are alike in all of them."""
        self._cut_in(
            [p for p in self.root.parts if self.sketch.is_step and p.title == "update"], most
        )

    def _cut(self, most: int) -> None:
        """Cut what is left into stretches of equal length, each one box."""
        self._cut_in([self.root], most)

    def _cut_in(self, roots: list[Part], most: int) -> None:
        """Cut the longest frame there is in some of them, again and again."""
        while (count := self._count()) > most:
            frames = [frame for root in roots for frame in root.frames()]
            if not frames:
                return
            frame = max(frames, key=lambda f: len(f.parts))
            parts, length = frame.parts, len(frame.parts)
            stretches = np.array_split(np.arange(length), max(_LEFT, most - count + length))
            if len(stretches) >= length:
                return
            frame.parts = [closed([parts[i] for i in stretch]) for stretch in stretches]

"""Folding: what is drawn once for many, and what is drawn as one box.

Each operation of a sketch follows what it reads. So any stretch can be taken for one part, and what
is left is still without a circle: a loop of the user's is a stretch that repeats, a function one
that it recorded. What would be too many boxes is folded step by step, and no further than needed:

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

from tapegraph.drawing.repetitions import find_repetition
from tapegraph.drawing.sketch import MIXED, Folded, Part, Sketch

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
        self.readers = sketch.readers()
        self.stages = self._stages()
        self._parent = list(range(len(sketch)))
        operations = sorted(sketch.operations(), key=self.stages.__getitem__)  # a stable sort
        self._merge_derivatives(operations)
        self.root = Part(parts=[Part([i]) for i in operations if self._base(i) == i])
        self.inscribed = {i for i, v in enumerate(self.vertices) if v.kind == "number"}

    def folded(self) -> Folded:
        if self.sketch.is_step:
            self._into_regions()
        if len(self.vertices) - len(self.inscribed) > self.most:
            self._inscribe()
            for step in self._steps():
                step()
            self._bound_leaves()
        base = list(map(self._base, range(len(self.vertices))))
        _add_leaves(self.sketch, self.root, base, self.inscribed)
        return Folded(self.sketch, self.root, base, self.inscribed)

    def _steps(self) -> list[Callable[[], None]]:
        """Return how to fold, gently first: a graph of numbers is wide, one of arrays is long."""
        last = [self._cut_updates, self._functions, self._levels, self._cut]
        if self.sketch.of_numbers:
            return [self._levels, self._repeats, self._chains, *last]
        return [self._repeats, self._subroutines, self._chains, *last]

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

    def _surplus(self) -> int:
        """Return how many boxes there are too many."""
        return len(self.root.boxes()) - self.most

    # Regions of a step

    def _stages(self) -> list[int]:
        """Return of each vertex how many backwards it comes after, twice; odd inside of one.

        What only an update reads belongs to it, though it reads no gradient itself.
        """
        stages: list[int] = []
        for vertex in self.vertices:
            stage = max((stages[i] for i in vertex.inputs), default=0)
            stages.append(stage + (stage % 2 != (vertex.kind == "gradient")) * bool(vertex.inputs))
        last = max(stages, default=0)
        for i in reversed(range(len(stages))):
            vertex = self.vertices[i]
            if vertex.kind == "gradient" or vertex.is_result or vertex.is_leaf:
                continue
            latest = [stages[r] - (self.vertices[r].kind == "gradient") for r in self.readers[i]]
            wanted = min(latest, default=last if vertex.writes else stages[i])
            stages[i] = max(stages[i], wanted - wanted % 2)
        return stages

    def _merge_derivatives(self, operations: Sequence[int]) -> None:
        """Let one box stand for all that one backward gives."""
        first: dict[tuple[int, ...], int] = {}
        for i in operations:
            if self.vertices[i].kind == "gradient":
                y, _, *seed = self.vertices[i].inputs
                self._merge(first.setdefault((y, *seed), i), i)

    def _into_regions(self) -> None:
        def title(part: Part) -> str:
            stage = self.stages[part.members[0]]
            return _REGIONS[stage if stage < 2 else 2 - stage % 2]

        runs = groupby(self.root.parts, title)
        regions = [Part(title=name, parts=list(run)) for name, run in runs]
        for frame in regions:
            if frame.title == "backward" and len(frame.parts) == 1:
                frame.members, frame.parts = frame.parts[0].members, []
        if len(regions) > 1:
            self.root.parts = regions

    # 1. Leaves

    def _inscribe(self) -> None:
        """Write leaves that one operation reads into its box."""
        for leaf, readers in enumerate(self.readers):
            vertex = self.vertices[leaf]
            if vertex.is_leaf and not vertex.is_result and vertex.kind != "input":
                bases = {self._base(r) for r in readers if self.vertices[r].kind != "gradient"}
                if len(bases) <= 1 or self.sketch.is_step:
                    self.inscribed.add(leaf)

    # 2. Repetitions

    def _repeats(self) -> None:
        """Fold what repeats, in the longest frame first, and there what spares most."""
        done: set[Part] = set()
        for _ in range(_FOLDS):
            frames = [frame for frame in self.root.frames() if frame not in done]
            if self._surplus() <= 0 or not frames:
                break
            frame = max(frames, key=lambda f: len(f.parts))
            if not self._repeat_in(frame):
                done.add(frame)
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
        else:
            body = [Part(times=times, parts=body)]
        parts[start : start + period * times] = body
        return True

    def _token(self, part: Part, exact: bool) -> object:
        if part.is_frame:
            return (part.times, *(self._token(p, exact) for p in part.parts))
        vertex = self.vertices[part.members[0]]
        kind = (vertex.dtype, vertex.shape) if exact else ()
        return vertex.op, len(vertex.inputs), part.times, kind

    def _stands_for(self, one: Part, other: Part) -> None:
        """Draw one part for another that is like it, with the leaves that only that one reads."""
        pairs = list(zip(one.all_members(), other.all_members(), strict=True))
        own = {mine for mine, _ in pairs}
        for mine, theirs in pairs:
            self._merge(mine, theirs)
        for pair in pairs:
            inputs = (self.vertices[i].inputs for i in pair)
            for leaf, gone in zip(*inputs, strict=True):
                if self._is_only_read_by(leaf, own) and self._is_only_read_by(gone, own):
                    self._merge(leaf, gone)

    def _is_only_read_by(self, leaf: int, operations: set[int]) -> bool:
        if not self.vertices[leaf].is_leaf or leaf in self.inscribed:
            return False
        return all(self._base(r) in operations for r in self.readers[leaf])

    # 3. Functions

    def _subroutines(self) -> None:
        """Make one box of each stretch of a function that there are several of."""
        if self._surplus() > 0:
            stretches = self._stretches()
            often = Counter(self._kind_of(name, parts) for name, parts in stretches)
            self._close(s for s in stretches if often[self._kind_of(*s)] > 1)

    def _functions(self) -> None:
        """Make one box of each stretch of a function, the short ones first."""
        left = self._surplus()
        chosen = []
        for name, parts in sorted(self._stretches(), key=lambda s: len(s[1])):
            if left > 0:
                chosen.append((name, parts))
                left -= len(parts) - 1
        self._close(chosen)

    def _close(self, stretches: Iterable[tuple[str, list[Part]]]) -> None:
        """Make one box of each of some stretches."""
        first: dict[Part, Part] = {}
        gone: set[Part] = set()
        for name, parts in stretches:
            first[parts[0]] = _closed(parts, name)
            gone.update(parts[1:])
        for frame in self.root.frames():
            frame.parts = [first.get(part, part) for part in frame.parts if part not in gone]

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

    def _chains(self) -> None:
        """Write operations that only the next one reads, and that reads nothing else, as lines."""
        reads, readers = self._links()
        for frame in self.root.frames():
            inside, gone = set(frame.parts), set[Part]()
            for part in frame.parts:
                if part.is_frame or len(reads[part]) != 1:
                    continue
                (before,) = reads[part]
                if not isinstance(before, Part) or before not in inside:
                    continue
                if readers[before] == {part} and self._may_follow(part, before):
                    before.members.extend(part.members)
                    part.members = before.members
                    reads[part] = reads[before]
                    gone.add(before)
            frame.parts = [part for part in frame.parts if part not in gone]

    def _links(self) -> tuple[dict[Part, set[Part | int]], dict[Part, set[Part]]]:
        """Return by box what it reads, boxes and leaves, and which boxes read it."""
        box = self.root.box_of()
        reads: dict[Part, set[Part | int]] = {part: set() for part in box.values()}
        readers: dict[Part, set[Part]] = {part: set() for part in box.values()}
        for i, vertex in enumerate(self.vertices):
            mine = box.get(self._base(i))
            if mine is None:
                continue
            for x in vertex.inputs:
                theirs = box.get(self._base(x))
                if theirs is None and x not in self.inscribed:
                    reads[mine].add(x)  # a leaf, which is drawn
                elif theirs is not None and theirs is not mine:
                    reads[mine].add(theirs)
                    readers[theirs].add(mine)
        return reads, readers

    def _may_follow(self, part: Part, before: Part) -> bool:
        """Return whether two boxes may be one, of which the latter alone reads the former."""
        if part.title or before.title or part.times != before.times:
            return False
        last = self.vertices[before.members[-1]]
        return not last.is_result and not last.writes

    # 5. What is still too much

    def _levels(self) -> None:
        """Make one box of the operations of one kind at one depth, frame by frame."""
        for frame in self.root.frames():
            if self._surplus() <= 0:
                return
            if any(part.is_frame for part in frame.parts):
                continue
            depth: dict[Part, int] = {}
            place = {self._base(i): part for part in frame.parts for i in part.members}
            for part in frame.parts:
                bases = {self._base(x) for i in part.members for x in self.vertices[i].inputs}
                read = {place[base] for base in bases if base in place} - {part}
                depth[part] = 1 + max((depth[p] for p in read), default=0)
            first: dict[object, Part] = {}
            for part in sorted(frame.parts, key=depth.__getitem__):
                ops = tuple(self.vertices[i].op for i in part.members)
                one = first.setdefault((depth[part], part.title, ops), part)
                if one is not part:
                    for mine, theirs in zip(one.members, part.members, strict=True):
                        self._merge(mine, theirs)
                    one.times += part.times
            frame.parts = list(first.values())
        if self.sketch.of_numbers:
            self._merge_leaves()

    def _merge_leaves(self) -> None:
        """Let one leaf stand for all of its kind that the same boxes read."""
        box = self.root.box_of()
        known: dict[object, int] = {}
        for leaf, readers in enumerate(self.readers):
            if self.vertices[leaf].is_leaf and leaf not in self.inscribed:
                by = frozenset(box.get(self._base(r)) for r in readers)
                self._merge(known.setdefault((self.vertices[leaf].kind, by), leaf), leaf)

    def _bound_leaves(self) -> None:
        """Draw no more leaves than boxes."""
        leaves = [i for i, v in enumerate(self.vertices) if v.is_leaf]
        for fold in (self._merge_leaves, lambda: self.inscribed.update(leaves)):
            if len(set(map(self._base, leaves)) - self.inscribed) > self.most:
                fold()

    def _cut_updates(self) -> None:
        """Cut the updates of a step first, which are alike in all of them."""
        if self.sketch.is_step:
            self._cut_in([part for part in self.root.parts if part.title == "update"])

    def _cut(self) -> None:
        """Cut what is left into stretches of equal length, each one box."""
        self._cut_in([self.root])

    def _cut_in(self, roots: list[Part]) -> None:
        """Cut the longest frame there is in some of them, again and again."""
        while (surplus := self._surplus()) > 0:
            frames = [frame for root in roots for frame in root.frames()]
            if not frames:
                return
            frame = max(frames, key=lambda f: len(f.parts))
            length = len(frame.parts)
            stretches = np.array_split(np.arange(length), max(_LEFT, length - surplus))
            if len(stretches) >= length:
                return
            frame.parts = [_closed([frame.parts[i] for i in stretch]) for stretch in stretches]


def _closed(parts: list[Part], title: str = MIXED) -> Part:
    """Return one box for some parts."""
    if len(parts) == 1:
        return parts[0]
    return Part([i for part in parts for i in part.all_members()], title=title)


def _add_leaves(sketch: Sketch, root: Part, base: list[int], inscribed: set[int]) -> None:
    """Draw the leaves that are boxes: in the innermost frame around all readers, before the first.

    A leaf that is one for all rounds of what repeats stands outside of it.
    """
    paths = {i: path for path in root.paths() for i in path[-1].members}
    order = {path[-1]: n for n, path in enumerate(paths.values())}
    drawn = [v.is_leaf and base[i] not in inscribed for i, v in enumerate(sketch.vertices)]
    alike = Counter(base[i] for i, is_drawn in enumerate(drawn) if is_drawn)
    readers: dict[int, list[list[Part]]] = {}
    for i, vertex in enumerate(sketch.vertices):
        if drawn[i]:
            readers.setdefault(base[i], [])
        for x in vertex.inputs if vertex.kind != "gradient" else ():
            if drawn[x]:
                readers.setdefault(base[x], []).append(paths[base[i]])
    before: dict[Part, list[Part]] = {}
    for leaf, read_in in readers.items():
        first = min(read_in, key=lambda path: order[path[-1]], default=[root, root])
        depth = _common(read_in) if read_in else 1
        while depth > 1 and first[depth - 1].times > 1 and alike[leaf] == 1:
            depth -= 1
        times = 1 if first[depth - 1].times > 1 else alike[leaf]
        before.setdefault(first[depth], []).append(Part([leaf], times=times))
    for frame in root.frames():
        frame.parts = [p for part in frame.parts for p in (*before.get(part, ()), part)]
    root.parts += before.get(root, ())


def _common(paths: list[list[Part]]) -> int:
    """Return how many frames there are around all of some boxes."""
    depth = 0
    while paths[0][depth].is_frame and all(path[depth] is paths[0][depth] for path in paths):
        depth += 1
    return depth

"""`backward` to the ``.grad`` of leaves; `gradients` as results, to be differentiated again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import compress
from typing import Any, NoReturn

import numpy as np

from tapegraph.differentiation import slopes as slopes  # declares what gradients read
from tapegraph.engines import registry
from tapegraph.engines.auto import differentiate
from tapegraph.engines.backend import LAST
from tapegraph.engines.choice import CLOCK
from tapegraph.errors import kind_of, line_number, message, place, sentence
from tapegraph.kinds import Tensor, Value
from tapegraph.other_names import unexpected
from tapegraph.recording.linearize import NEEDS_GRADIENT, History, entry_name
from tapegraph.recording.node import Node, as_leaf, next_seq, numeric, tape_entry
from tapegraph.recording.record import keep_parts
from tapegraph.recording.scopes import RECORDING, Scope, recorder
from tapegraph.row_sparse import dense_copy
from tapegraph.typed import Array, ArrayLike


def backward(y: Tensor | Value, seed: ArrayLike | None = None, **others: NoReturn) -> None:
    """Add the gradient of a result to the ``.grad`` of every leaf it was computed from.

    :param y: The output to differentiate, of any shape.
    :param seed: Array_like of y's shape. The cotangent of ``y``; ones if not given.
    :raises RuntimeError: ``y`` does not require a gradient, its entries were cleared, or a leaf was
        changed after it was recorded.
    :raises ValueError: The seed's shape differs from ``y``'s.
    :raises TypeError: ``y`` is no tensor, the seed is not numeric, or a complex ``y`` has none.

    Nothing is written unless everything was computed. The gradient of a real ``L`` with respect to
    a complex ``z = x + iy`` is ``dL/dx + i dL/dy``, as in PyTorch: ``z - lr * z.grad`` descends.

    >>> x = tg.param([1.0, 2.0])
    >>> tg.backward(tg.sum(x * x))
    >>> x.grad
    array([2., 4.])
    """
    if others:
        raise unexpected("backward", others)
    if not isinstance(y, Node):
        if hasattr(type(y), "__tapegraph_apply__") and hasattr(y, "backward"):
            if seed is not None:
                raise TypeError(
                    sentence("backward", "the seed of a Value is always 1. Leave it out.")
                )
            y.backward()
            return
        raise TypeError(message("backward", kind_of(y), "a Tensor"))
    if not y._requires_grad:
        text = (
            f"the result, {kind_of(y)}, does not require a gradient. Compute it from a tg.param, "
            "outside tg.no_grad(). Results of a compiled step are constants: call backward() "
            "inside the step."
        )
        raise RuntimeError(sentence("backward", text))
    here = recorder()
    cotangent = cotangent_of(y, seed, borrow=True)
    history = here.graph([y])
    _warn_of_float64(history)
    grads = differentiate(history, [cotangent])
    given = seed if seed is None or isinstance(seed, Node) else cotangent
    here.add_gradients(history, grads, given)


# Where Python notes which lines have been warned of; the text names file and line.
_warned: dict[Any, Any] = {}


def _warn_of_float64(history: History) -> None:
    """Warn, once a line, of operations that widen float32 parameters' results."""
    (y,) = history.ys
    if (y if y._array is None else y._array).dtype.char != "d":
        return
    for x in history.wanted:
        if (x if x._array is None else x._array).dtype.char == "f":
            break
    else:
        return
    for node in reversed(history.entries):
        given = [x for x in node._inputs if isinstance(x, Node)]
        wide = [x for x in given if x.dtype.char == "d"]
        narrow = [x for x in given if x.dtype.char == "f" and x._requires_grad]
        if not (wide and narrow and node.dtype.char == "d"):
            continue
        file, line = node._code.co_filename, line_number(node._code, node._lasti)
        name = f" {narrow[0].name!r}" if narrow[0].name else ""
        fix = 'Write array.astype("float32")'
        if not wide[0].shape:
            fix = "Write a Python number, float(number), which takes the other's dtype"
        warnings.warn_explicit(
            f"{node._op.name}: received float64 of shape {wide[0].shape} beside float32"
            f"{name} of shape {narrow[0].shape}, so that the result and later ones are "
            f"float64; expected one dtype. {fix}, or make the parameters float64: "
            f'tg.param(data, dtype="float64"). (at {place(file, line)})',
            UserWarning,
            file,
            line or 0,
            registry=_warned,
        )


def cotangent_of(y: Node, seed: object = None, *, borrow: bool = False) -> Array:
    """Return the seed as an array of y's type, ones by default; ``borrow`` allows a view."""
    data = y._array
    if seed is None and data.dtype.kind == "c":
        text = (
            f"the result is complex ({data.dtype}), and only a real loss has a gradient. Take its "
            ".real or tg.abs of it, pass a seed, or differentiate a holomorphic function with "
            "tg.grad(f, holomorphic=True)."
        )
        raise TypeError(sentence("backward", text))
    if seed is None:  # of one number, in a quarter of the time
        return np.ones_like(data) if data.shape else np.array(1, data.dtype)
    if isinstance(seed, Node) and not seed._requires_grad:
        seed = seed._array
    if borrow and type(seed) is np.ndarray and seed.dtype == data.dtype and seed.dtype.isnative:
        if seed.shape == data.shape:
            view = seed.view()
            view.flags.writeable = False
            return view
    array = numeric(seed, "backward", "seed")
    keep_parts("backward", "a seed", array.dtype, data.dtype)
    array = array.astype(data.dtype, copy=False)
    if array.shape != data.shape:
        raise ValueError(
            message("backward", f"a seed of shape {array.shape}", f"y's shape {data.shape}")
        )
    return array


def gradients(
    y: Tensor,
    xs: Tensor | Sequence[Tensor],
    seed: ArrayLike | None = None,
    *,
    create_graph: bool = False,
    allow_unused: bool = False,
    **others: NoReturn,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``y`` with respect to some tensors, without writing ``.grad``.

    :param y, xs: The output, of any shape, and the tensors: parameters or intermediate results.
    :param seed: Array_like of y's shape. The cotangent of ``y``; ones if not given.
    :param create_graph: Record the gradients' computation, to differentiate them again.
    :param allow_unused: Return None for tensors that ``y`` does not depend on, instead of raising.
    :returns: Tuple of Tensor. One per ``x``, of its shape and dtype.
    :raises RuntimeError: ``y`` does not depend on one of ``xs``, its entries were cleared, or a
        leaf was changed after it was recorded.
    :raises ValueError: The seed's shape differs from ``y``'s.
    :raises TypeError: ``y`` or one of ``xs`` is no tensor, or the seed is not numeric.
    :raises NotImplementedError: With ``create_graph``: an operation has no recorded gradient.

    >>> x = tg.param([1.0, 2.0])
    >>> (slope,) = tg.gradients(tg.sum(x**3), [x], create_graph=True)
    >>> slope.data, tg.gradients(slope, x)[0].data
    (array([ 3., 12.]), array([ 6., 12.]))
    """
    if others:
        raise unexpected("gradients", others)
    if not isinstance(y, Node):
        fix = ""
        if hasattr(type(y), "__tapegraph_apply__"):
            fix = "For a Value call its backward(), for a Dual write tg.grad or tg.jvp."
        raise TypeError(message("gradients", f"{kind_of(y)} for 'y'", "a Tensor", fix))
    targets = [xs] if isinstance(xs, Node) else list(xs)
    for i, x in enumerate(targets):
        if not isinstance(x, Node):
            raise TypeError(message("gradients", f"{kind_of(x)} for xs[{i}]", "a Tensor"))
    found = Region([y], targets).gradients([seed], record=create_graph)
    for i, (x, grad) in enumerate(zip(targets, found, strict=True)):
        if grad is None and not allow_unused:
            entry = tape_entry(x)
            text = (
                f"y does not depend on xs[{i}], {entry_name(entry._op, entry)}. Leave it out, or "
                "write allow_unused=True to get None for it."
            )
            raise RuntimeError(sentence("gradients", text))
    return tuple(found)


_MANY = "many cotangents at once, as the rows of a Jacobian, are swept natively"


class Region:
    """The graph between some tensors and results computed from them.

    :param since, apart: Older nodes are leaves; no gradient flows on from one target to another.
    :ivar wanted, outside: The targets that the results depend on; other leaves with a gradient.
    :ivar varies: Whether results or gradients depend on another leaf that needs a gradient.
    """

    def __init__(
        self,
        ys: Sequence[Any],
        targets: Sequence[Any],
        *,
        since: int | None = None,
        apart: bool = False,
    ) -> None:
        entries, oldest = [], next_seq() if since is None else since
        for x in targets:
            x = x._entry or x
            entries.append(x)
            if since is None and x._seq < oldest:
                oldest = x._seq
        self._ys = ys
        self._targets: Any = entries
        self._history: History | None = None
        self.wanted: list[Any] = []
        self.outside: list[Any] = []
        if any(map(NEEDS_GRADIENT, ys)):
            ends = set(entries) if apart or since is not None else ()
            self._history = history = recorder().graph(ys, entries, oldest, ends)
            self._targets = history.targets
            self.wanted, self.outside = history.wanted, history.outside
        self.varies = bool(self.outside)
        for x in self._targets:
            for i in x._inputs:
                if getattr(i, "_requires_grad", False):
                    self.varies = True

    def keep(self) -> None:
        if self._history is not None:
            self._history.keep()

    def gradients(
        self, seeds: Sequence[object], *, record: bool, natively: bool = False
    ) -> list[Any]:
        """Return the gradient with respect to each target as a Tensor; None if independent.

        ``natively`` runs the native engine, and leaves the report of the last backward unchanged.
        """
        given: list[Any] = [
            s if s is None or isinstance(s, Node) else as_leaf(cotangent_of(y, s))
            for y, s in zip(self._ys, seeds, strict=True)
        ]
        arrays = [
            cotangent_of(y, None if s is None else s._array)
            for y, s in zip(self._ys, given, strict=True)
        ]
        history = self._history
        if history is None or not self.wanted:
            found: list[Any] = []
        elif record:
            starts = [
                as_leaf(a) if s is None else s if s.dtype == a.dtype else s.astype(a.dtype)
                for s, a in zip(given, arrays, strict=True)
            ]
            with Scope(RECORDING, True):
                found = registry.engine(registry.NATIVE).recorded(history.recording, starts)
        else:
            if natively:
                grads, _, _ = registry.engine(registry.NATIVE).differentiate(history, arrays)
            else:
                grads = differentiate(history, arrays)
            seed = [s for s in given if s is not None]
            # Both operands of a + b receive the same array; each result must be its own.
            own = list(map(dense_copy, grads))
            found = recorder().derivatives(history, own, seed)
        return self._by_target(found)

    def arrays(self) -> list[Array]:
        """Return the gradients for a seed of ones as arrays: neither recorded nor captured."""
        grads: list[Any] = []
        if self._history is not None and self.wanted:
            grads = differentiate(self._history, list(map(cotangent_of, self._ys)))
        if len(grads) == len(self._targets):  # in the order of the targets
            return list(map(dense_copy, grads))
        by = dict(zip(self.wanted, grads, strict=True))
        return [dense_copy(by[x]) if x in by else np.zeros(x.shape, x.dtype) for x in self._targets]

    def of_examples(self, seed: object, *, record: bool) -> list[Any]:
        """Return the gradients of the one result for a seed of many examples (`tg.vmap`)."""
        if self._history is None or not self.wanted:
            return self._by_target([])
        start = CLOCK.now()
        with Scope(RECORDING, record):
            found = registry.engine(registry.NATIVE).recorded(self._history.recording, [seed])
        if not record:
            seconds = CLOCK.now() - start
            LAST.set((registry.NATIVE, _MANY, self._history.length, False, 0.0, seconds))
        return self._by_target(found)

    @property
    def widest(self) -> int:
        """The number of elements of the largest cotangent of a backward."""
        if self._history is None:
            return 1
        program = self._history.recording.program
        return max(map(math.prod, compress(program.shapes, program.needs)), default=1) or 1

    @property
    def recording(self) -> Any:
        return None if self._history is None else self._history.recording

    def _by_target(self, found: list[Any]) -> list[Any]:
        if len(self._targets) == len(found) == 1:
            return found
        by = dict(zip(self.wanted, found, strict=bool(found)))
        return [by.get(x) for x in self._targets]

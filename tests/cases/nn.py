"""Cases: Neural networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import losses, nn, reduce, shape
from tapegraph.typed import Array
from tests.cases.case import (
    Case,
    Shape,
    anywhere,
    distinct,
    exactly,
    inf,
    positive,
)
from tests.cases.reduce import softmax_of

# Layers

CONVOLVED: tuple[tuple[str, Shape, Shape, dict[str, Any]], ...] = (
    ("plain", (1, 1, 4, 4), (1, 1, 3, 3), {}),
    ("channels", (2, 2, 3, 4), (3, 2, 2, 3), {}),
    ("1x1", (1, 2, 2, 3), (2, 2, 1, 1), {}),
    ("whole-image", (2, 1, 3, 2), (1, 1, 3, 2), {}),
    ("stride", (1, 1, 5, 5), (1, 1, 3, 3), {"stride": 2}),
    ("stride-remainder", (1, 1, 6, 5), (1, 1, 3, 2), {"stride": (2, 3)}),
    ("stride-past-kernel", (1, 1, 5, 5), (1, 1, 2, 2), {"stride": 3}),
    ("pad", (1, 1, 3, 3), (1, 1, 3, 3), {"pad": 1}),
    ("pad-pair", (1, 1, 2, 3), (1, 1, 2, 3), {"pad": (2, 1)}),
    ("dilation", (1, 1, 5, 5), (1, 1, 2, 2), {"dilation": 2}),
    ("dilation-pair", (1, 1, 4, 5), (1, 1, 2, 2), {"dilation": (3, 2)}),
    ("everything", (2, 2, 5, 4), (2, 2, 2, 3), {"stride": (2, 1), "pad": (1, 2), "dilation": 2}),
    ("no-images", (0, 1, 3, 3), (1, 1, 2, 2), {}),
    ("no-kernels", (1, 1, 3, 3), (0, 1, 2, 2), {}),
    ("no-channels", (1, 0, 3, 3), (2, 0, 2, 2), {}),
)

POOLED: tuple[tuple[str, Shape, dict[str, Any]], ...] = (
    ("plain", (1, 1, 4, 4), {"ksize": 2}),
    ("channels", (2, 2, 2, 4), {"ksize": 2}),
    ("remainder", (1, 1, 5, 3), {"ksize": 2}),
    ("pair", (1, 1, 3, 4), {"ksize": (3, 2)}),
    ("overlapping", (1, 2, 4, 4), {"ksize": 3, "stride": 1}),
    ("gaps", (1, 1, 5, 5), {"ksize": 2, "stride": 3}),
    ("stride-pair", (1, 1, 4, 5), {"ksize": 2, "stride": (1, 3)}),
    ("pad", (1, 1, 4, 4), {"ksize": 3, "stride": 2, "pad": 1}),
    ("pad-pair", (1, 1, 3, 4), {"ksize": (2, 3), "stride": (2, 1), "pad": (0, 2)}),
    ("1x1", (1, 2, 2, 2), {"ksize": 1}),
    ("no-images", (0, 1, 4, 4), {"ksize": 2}),
)

NORMALISED: tuple[tuple[str, Shape, Shape, Shape, dict[str, Any]], ...] = (
    ("vector", (4,), (4,), (4,), {}),
    ("rows", (3, 4), (4,), (4,), {}),
    ("3d", (2, 2, 3), (3,), (3,), {}),
    ("eps", (2, 4), (4,), (4,), {"eps": 0.5}),
    ("0d-scale-and-shift", (2, 4), (), (), {}),
    ("own-scale-a-row", (2, 3), (2, 1), (2, 3), {}),
    ("one-feature", (3, 1), (1,), (1,), {}),
    ("no-rows", (0, 3), (3,), (3,), {}),
)

TIES: tuple[tuple[str, dict[str, Any], Any, Any], ...] = (
    ("all-equal", {"ksize": 2}, np.ones((2, 4)), [[1, 0, 1, 0], [0, 0, 0, 0]]),
    ("second-row", {"ksize": 2}, [[0, 1], [1, 1]], [[0, 1], [0, 0]]),
    ("overlapping", {"ksize": 2, "stride": 1}, [[1, 1, 1], [1, 1, 1]], [[1, 1, 0], [0, 0, 0]]),
    # Padding is smaller than any number, and so never takes the gradient.
    ("pad", {"ksize": 2, "pad": 1}, [[-5, -5], [-5, -5]], [[1, 1], [1, 1]]),
    (
        "pad-as-large",
        {"ksize": 3, "pad": 1, "stride": 2},
        np.full((3, 3), -inf),
        [[1, 1, 0], [1, 1, 0], [0, 0, 0]],
    ),
)


def _layers() -> Iterator[Case]:
    for label, lengths, kernel, options in CONVOLVED:
        yield Case(
            "conv2d",
            label,
            partial(nn.conv2d, **options),
            (anywhere(*lengths), anywhere(*kernel)),
            reference=partial(_convolved, **options),
        )
    yield Case(
        "conv2d",
        "twice",
        lambda x: nn.conv2d(x, x, pad=1),
        (anywhere(2, 2, 2, 2),),
        reference=lambda x: _convolved(x, x, pad=1),
    )
    for function, pick, domain in (
        (nn.max_pool2d, np.max, distinct),
        (nn.avg_pool2d, np.mean, anywhere),
    ):
        for label, lengths, options in POOLED:
            yield Case(
                function.__name__,
                label,
                partial(function, **options),
                (domain(*lengths),),
                reference=partial(_pooled, pick, **options),
            )
    yield from _pool_ties()
    yield from _layer_norms()
    yield from _crossentropies()
    yield from _mean_squares()


def _pool_ties() -> Iterator[Case]:
    for label, options, point, gradient in TIES:
        yield Case(
            "max_pool2d",
            f"ties-{label}",
            partial(nn.max_pool2d, **options),
            (exactly(np.asarray(point)[None, None]),),
            reference=partial(_pooled, np.max, **options),
            expected=(np.asarray(gradient)[None, None],),
        )


def _layer_norms() -> Iterator[Case]:
    for label, lengths, gamma, beta, options in NORMALISED:
        yield Case(
            "layer_norm",
            label,
            partial(nn.layer_norm, **options),
            (anywhere(*lengths), anywhere(*gamma), anywhere(*beta)),
            reference=partial(_normalised, **options),
        )
    for label, lengths, run in (
        ("scale-is-shift", (3,), lambda form, x, scale: form(x, scale, scale)),
        ("input-is-shift", (2, 3), lambda form, x, scale: form(x, scale, x)),
    ):
        yield Case(
            "layer_norm",
            label,
            partial(run, nn.layer_norm),
            (anywhere(2, 3), anywhere(*lengths)),
            reference=partial(run, _normalised),
        )
    yield Case(
        "layer_norm",
        "equal-features",
        nn.layer_norm,
        (exactly([[2.0, 2.0, 2.0]]), anywhere(3), anywhere(3)),
        reference=_normalised,
    )


def _crossentropies() -> Iterator[Case]:
    one_hot = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    soft = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]])
    for label, lengths, targets in (
        ("classes", (3, 4), np.array([2, 0, 3])),
        ("repeated-class", (3, 2), np.array([1, 1, 1])),
        ("one-row", (4,), np.array(2)),
        ("3d-classes", (2, 2, 3), np.array([[0, 2], [1, 1]])),
        ("small-integers", (2, 3), np.array([0, 2], dtype=np.uint8)),
        ("one-class", (2, 1), np.array([0, 0])),
        ("one-hot", (2, 3), one_hot),
        ("one-hot-integers", (2, 3), one_hot.astype(np.int64)),
        ("soft", (2, 3), soft),
        ("one-soft-row", (3,), soft[0]),
        ("3d-soft", (2, 2, 3), np.stack([soft, one_hot])),
        # Rows of targets need not add up to 1.
        ("unnormalised", (2, 3), 2.0 * soft + 0.1),
    ):
        yield Case(
            "softmax_crossentropy",
            label,
            losses.softmax_crossentropy,
            (anywhere(*lengths),),
            (targets,),
            reference=_crossentropy,
        )
    yield Case(
        "softmax_crossentropy",
        "targets-with-gradient",
        losses.softmax_crossentropy,
        (anywhere(2, 3), positive(2, 3)),
        reference=_crossentropy,
    )
    yield Case(
        "softmax_crossentropy",
        "entropy",
        lambda x: losses.softmax_crossentropy(x, reduce.softmax(x)),
        (anywhere(2, 3),),
        reference=lambda x: _crossentropy(x, softmax_of(x)),
    )
    for label, targets in (
        ("classes", np.array([0, 0])),
        ("one-hot", np.array([[1.0, 0.0], [1.0, 0.0]])),
    ):
        yield Case(
            "softmax_crossentropy",
            f"far-apart-{label}",
            losses.softmax_crossentropy,
            (exactly([[1000.0, 0.0], [0.0, 1000.0]]),),
            (targets,),
            reference=lambda logits, targets: np.array(500.0),
            expected=([[0.0, 0.0], [-0.5, 0.5]],),
        )


def _mean_squares() -> Iterator[Case]:
    for label, both in (
        ("matrix", anywhere(2, 3)),
        ("0d", anywhere()),
        ("4d", anywhere(2, 1, 3, 2)),
    ):
        yield Case(
            "mse_loss",
            label,
            losses.mse_loss,
            (both, both),
            reference=_mean_square,
        )
    yield Case(
        "mse_loss",
        "transposed",
        lambda x, target: losses.mse_loss(shape.transpose(x), target),
        (anywhere(3, 2),),
        (np.arange(6.0).reshape(2, 3),),
        reference=lambda x, target: _mean_square(x.T, target),
    )
    yield Case(
        "mse_loss",
        "integer-target",
        losses.mse_loss,
        (anywhere(3),),
        (np.array([1, 0, 2], dtype=np.uint8),),
        reference=_mean_square,
    )
    yield Case(
        "mse_loss",
        "with-itself",
        lambda x: losses.mse_loss(x, x),
        (anywhere(3),),
        reference=lambda x: np.array(0.0),
        expected=([0.0, 0.0, 0.0],),
    )


def _mean_square(a: Array, b: Array) -> Any:
    return np.mean(np.square(a - b))


def _pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _places(length: int, reach: int, stride: int, pad: int) -> range:
    """Return where windows of ``reach`` pixels start, counted from the first unpadded pixel."""
    return range(-pad, length + pad - reach + 1, stride)


def _convolved(x: Array, k: Array, stride: Any = 1, pad: Any = 0, dilation: Any = 1) -> Any:
    (dh, dw), (kh, kw), (h, w) = _pair(dilation), k.shape[2:], x.shape[2:]
    rows = _places(h, dh * (kh - 1) + 1, _pair(stride)[0], _pair(pad)[0])
    columns = _places(w, dw * (kw - 1) + 1, _pair(stride)[1], _pair(pad)[1])
    out = np.zeros((len(x), len(k), len(rows), len(columns)), dtype=x.dtype)
    for (i, top), (j, left), di, dj in _nested(enumerate(rows), enumerate(columns), kh, kw):
        row, column = top + di * dh, left + dj * dw
        if 0 <= row < h and 0 <= column < w:
            out[:, :, i, j] += np.einsum("nc,oc->no", x[:, :, row, column], k[:, :, di, dj])
    return out


def _nested(rows: Any, columns: Any, kh: int, kw: int) -> Iterator[tuple[Any, Any, int, int]]:
    across = list(columns)
    for row in rows:
        for column in across:
            for di, dj in np.ndindex(kh, kw):
                yield row, column, di, dj


def _pooled(
    pick: Callable[..., Any], x: Array, ksize: Any, stride: Any = None, pad: Any = 0
) -> Any:
    (kh, kw), step, border = _pair(ksize), _pair(ksize if stride is None else stride), _pair(pad)
    rows = _places(x.shape[2], kh, step[0], border[0])
    columns = _places(x.shape[3], kw, step[1], border[1])
    out = np.zeros((*x.shape[:2], len(rows), len(columns)), dtype=x.dtype)
    for i, top in enumerate(rows):
        for j, left in enumerate(columns):
            seen = x[:, :, max(top, 0) : top + kh, max(left, 0) : left + kw]
            out[:, :, i, j] = pick(seen, axis=(2, 3))
    return out


def _normalised(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Any:
    deviation = np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)
    return gamma * (x - np.mean(x, axis=-1, keepdims=True)) / deviation + beta


def _crossentropy(logits: Array, targets: Array) -> Any:
    if targets.ndim < logits.ndim:
        targets = np.eye(logits.shape[-1])[targets]
    return -np.mean(np.sum(targets * np.log(softmax_of(logits)), axis=-1))


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _layers()

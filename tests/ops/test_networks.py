"""Losses, activations, norms, attention and their kin against PyTorch, both engines, compiled.

Values, gradients, second derivatives against finite differences, float32, and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tapegraph as tg

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


class Case(NamedTuple):
    """A call of ours, PyTorch's, and the arrays that both are differentiated in."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


EDGES = np.array([-40.0, -2.5, -1.0, -0.3, 0.4, 1.0, 2.0, 40.0])
SHARES = np.array([0.0, 1.0, 0.3, 0.0, 1.0, 1.0, 0.5, 1.0])
LOGITS, LABELS = normal(2, 3, 5), np.array([[1, -100, 3], [0, 2, 4]])
ROWS = RNG.dirichlet(np.ones(5), (2, 3))
Q, K, V = normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3)
SEEN = np.array([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]], dtype=bool)
ADDED = np.where(SEEN, normal(3, 5), -np.inf)
IMAGES, C = normal(3, 4, 2, 3), (normal(4), normal(4))


def first(t: Any) -> Any:
    """Put the classes, which are last here, where PyTorch has them."""
    return t.movedim(-1, 1)


CASES = {
    "leaky_relu": Case(
        lambda x: tg.leaky_relu(x, 0.2), lambda F, t, x: F.leaky_relu(x, 0.2), (EDGES,)
    ),
    "elu": Case(lambda x: tg.elu(x, 1.5), lambda F, t, x: F.elu(x, 1.5), (EDGES[1:],)),
    "smooth_l1": Case(
        lambda x: tg.smooth_l1(x, SHARES, 0.7),
        lambda F, t, x: F.smooth_l1_loss(x, t(SHARES), beta=0.7),
        (EDGES,),
    ),
    **{
        f"binary_crossentropy {r}": Case(
            lambda x, r=r: tg.binary_crossentropy(x, SHARES, reduction=r),
            lambda F, t, x, r=r: F.binary_cross_entropy_with_logits(x, t(SHARES), reduction=r),
            (EDGES,),
        )
        for r in ("mean", "sum", "none")
    },
    **{
        f"softmax_crossentropy of classes {r} {s}": Case(
            lambda x, r=r, s=s: tg.softmax_crossentropy(
                x, LABELS, ignore_index=-100, label_smoothing=s, reduction=r
            ),
            lambda F, t, x, r=r, s=s: F.cross_entropy(
                first(x), t(LABELS), ignore_index=-100, label_smoothing=s, reduction=r
            ),
            (LOGITS,),
        )
        for r, s in (("mean", 0.0), ("mean", 0.2), ("sum", 0.2), ("none", 0.0), ("none", 1.0))
    },
    **{
        f"softmax_crossentropy of rows {r} {s}": Case(
            lambda x, y, r=r, s=s: tg.softmax_crossentropy(x, y, label_smoothing=s, reduction=r),
            lambda F, t, x, y, r=r, s=s: F.cross_entropy(
                first(x), first(y), label_smoothing=s, reduction=r
            ),
            (LOGITS, ROWS),
        )
        for r, s in (("mean", 0.2), ("sum", 0.0), ("none", 0.2))
    },
    "attention": Case(
        tg.scaled_dot_product_attention,
        lambda F, t, *qkv: F.scaled_dot_product_attention(*qkv),
        (Q, K, V),
    ),
    "attention, causal": Case(
        lambda *qkv: tg.scaled_dot_product_attention(*qkv, is_causal=True, scale=0.3),
        lambda F, t, *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, scale=0.3),
        (Q, K, V),
    ),
    "attention, some seen, of one query none": Case(
        lambda *qkv: tg.scaled_dot_product_attention(*qkv, SEEN),
        lambda F, t, *qkv: F.scaled_dot_product_attention(*qkv, t(SEEN)),
        (Q, K, V),
    ),
    "attention, something added": Case(
        lambda *qkv: tg.scaled_dot_product_attention(*qkv, ADDED.astype(qkv[0].dtype)),
        lambda F, t, *qkv: F.scaled_dot_product_attention(*qkv, t(ADDED)),
        (Q, K, V),
    ),
    "rms_norm": Case(
        tg.rms_norm, lambda F, t, x, w: F.rms_norm(x, w.shape, w), (IMAGES, normal(3))
    ),
    "group_norm": Case(
        lambda x, w, b: tg.group_norm(x, 2, w, b),
        lambda F, t, x, w, b: F.group_norm(x, 2, w, b),
        (IMAGES, *C),
    ),
    "batch_norm of the batch": Case(
        lambda x, w, b: tg.batch_norm(x, weight=w, bias=b),
        lambda F, t, x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (IMAGES, *C),
    ),
    "batch_norm of channels that are last": Case(
        lambda x, w: tg.batch_norm(x, weight=w, eps=0.1, axis=-1),
        lambda F, t, x, w: F.batch_norm(
            x.movedim(-1, 1), None, None, w, training=True, eps=0.1
        ).movedim(1, -1),
        (IMAGES, normal(3)),
    ),
    "batch_norm of running ones": Case(
        lambda x: tg.batch_norm(x, C[0].astype(x.dtype), C[1].astype(x.dtype) ** 2),
        lambda F, t, x: F.batch_norm(x, t(C[0]), t(C[1] ** 2)),
        (IMAGES,),
    ),
    "topk": Case(lambda x: tg.topk(x, 2, 1)[0], lambda F, t, x: x.topk(2, 1)[0], (IMAGES,)),
    "topk, the smallest, all": Case(
        lambda x: tg.topk(x, 3, largest=False)[0],
        lambda F, t, x: x.topk(3, largest=False)[0],
        (IMAGES,),
    ),
    "conv1d": Case(
        lambda x, k: tg.conv1d(x, k, stride=2, pad=1, dilation=3),
        lambda F, t, x, k: F.conv1d(x, k, None, 2, 1, 3),
        (normal(2, 3, 9), normal(4, 3, 2)),
    ),
    **{
        f"conv_transpose2d {options}": Case(
            lambda x, k, options=options: tg.conv_transpose2d(x, k, *options),
            lambda F, t, x, k, options=options: F.conv_transpose2d(
                x, k, None, *options[:3], 1, options[3]
            ),
            (normal(2, 3, 3, 2), normal(3, 2, 3, 2)),
        )
        for options in ((1, 0, 0, 1), ((2, 3), (2, 1), (1, 2), (1, 2)), (2, (3, 0), 0, 2))
    },
}


@pytest.mark.filterwarnings("ignore:.*conv2d runs in the native engine")
@pytest.mark.parametrize("name", CASES)
def test_as_pytorch_in_both_engines_and_compiled(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("tensorflow")
    ours, theirs, arrays = CASES[name]

    def sweep(*leaves):
        out = ours(*leaves)
        tg.sum(out * out).backward()
        return out

    for dtype, rtol, atol in (("float64", 1e-10, 1e-12), ("float32", 2e-4, 2e-5)):
        given = [a.astype(dtype) for a in arrays]

        def constant(x, dtype=dtype):
            return torch.tensor(x.astype(dtype) if x.dtype.kind == "f" else x)

        wanted = [torch.tensor(a, requires_grad=True) for a in given]
        expected = theirs(torch.nn.functional, constant, *wanted)
        (expected * expected).sum().backward()
        for how in ("native", "tensorflow", "compiled") if dtype == "float64" else ("compiled",):
            leaves = [tg.param(a) for a in given]
            with tg.use_backend("native" if how == "native" else "tensorflow"):
                step = tg.compile(lambda leaves=leaves: sweep(*leaves))
                out = step() if how == "compiled" else sweep(*leaves)
            assert out.dtype == dtype
            np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), rtol, atol)
            for leaf, other in zip(leaves, wanted, strict=True):
                assert leaf.grad.dtype == dtype
                np.testing.assert_allclose(leaf.grad, other.grad.numpy(), rtol, atol, err_msg=how)
        if dtype == "float64":
            check_second(ours, given)


def check_second(f, arrays):
    """A Hessian times a vector against central differences of gradients."""
    rng = np.random.default_rng(0)
    along = [rng.normal(size=a.shape) for a in arrays]

    def slope(*leaves):
        grads = tg.gradients(tg.sum(tg.sin(f(*leaves))), list(leaves), create_graph=True)
        return sum(tg.sum(g * v) for g, v in zip(grads, along, strict=True))

    def first_at(h):
        leaves = [tg.param(a + h * v) for a, v in zip(arrays, along, strict=True)]
        return tg.gradients(tg.sum(tg.sin(f(*leaves))), leaves)

    leaves = [tg.param(a) for a in arrays]
    found = tg.gradients(slope(*leaves), leaves)
    for second, after, before in zip(found, first_at(1e-6), first_at(-1e-6), strict=True):
        rise = (np.asarray(after.data) - np.asarray(before.data)) / 2e-6
        got = np.zeros_like(rise) if second is None else second.data
        np.testing.assert_allclose(got, rise, rtol=2e-5, atol=2e-6)


def test_group_norm_divides_by_the_biased_deviation_of_each_group():
    found = tg.group_norm(IMAGES, 2, *C, eps=0.1)
    for i, j in np.ndindex(3, 4):
        group = IMAGES[i, j // 2 * 2 : j // 2 * 2 + 2]
        normal = (IMAGES[i, j] - np.mean(group)) / np.sqrt(np.var(group) + 0.1)
        np.testing.assert_allclose(found.data[i, j], normal * C[0][j] + C[1][j], rtol=1e-12)


def test_a_sure_logit_keeps_its_digits_and_an_infinite_one_its_meaning():
    loss = tg.binary_crossentropy([40.0, -40.0], [1.0, 0.0], reduction="none")
    np.testing.assert_allclose(loss.numpy(), np.log1p(np.exp([-40.0, -40.0])), rtol=1e-12)
    x = tg.param([np.inf, -np.inf, np.inf, -np.inf])
    loss = tg.binary_crossentropy(x, [1.0, 0.0, 0.0, 1.0], reduction="none")
    loss.backward()
    assert loss.numpy().tolist() == [0.0, 0.0, np.inf, np.inf]
    assert x.grad.tolist() == [0.0, 0.0, 1.0, -1.0]
    with np.errstate(invalid="ignore"):
        assert np.isnan(tg.binary_crossentropy([np.nan], [0.0]).item())
    rows = tg.softmax_crossentropy([[0.0, -np.inf]], [[1.0, 0.0]], reduction="none")
    assert rows.numpy().tolist() == [0.0]


def test_targets_that_are_no_probabilities_warn():
    logits, labels = tg.param([-1.5, 2.0, 0.5]), np.array([0, 1, 1])
    swapped = r"targets from -1\.5 to 2; .*\(logits, targets\)"
    with pytest.warns(UserWarning, match=swapped):
        tg.binary_crossentropy(labels, logits)
    with pytest.warns(UserWarning, match=swapped):
        tg.compile(lambda x, y: tg.binary_crossentropy(y, x * logits))(np.ones(3), labels)
    with pytest.warns(UserWarning, match=r"from -1 to 1; .*\(labels \+ 1\) / 2"):
        tg.binary_crossentropy(logits, 2 * labels - 1)
    rounded = tg.binary_crossentropy(logits, labels + 1e-6)
    assert rounded.item() == pytest.approx(np.mean(np.log1p(np.exp([-1.5, -2.0, -0.5]))), rel=1e-5)


def test_the_gradient_of_targets_that_are_zero_is_kept():
    targets = tg.param([[1.0, 0.0]])
    tg.softmax_crossentropy([[0.0, 2.0]], targets, reduction="sum").backward()
    np.testing.assert_allclose(targets.grad, [[np.log1p(np.e**2), np.log1p(np.e**2) - 2.0]])


def test_ignored_rows_alone_have_no_mean():
    logits = tg.param(LOGITS[0])
    with np.errstate(invalid="ignore"):
        assert np.isnan(tg.softmax_crossentropy(logits, [7, 7, 7], ignore_index=7).item())


def test_a_query_that_sees_nothing_in_attention_is_given_zeros():
    seen = np.array([[False, False, False], [True, False, False], [True, True, True]])
    rows = tg.param(RNG.normal(size=(3, 4)))
    found = tg.scaled_dot_product_attention(rows, rows, rows, seen)
    np.testing.assert_array_equal(found.data[0], np.zeros(4))
    np.testing.assert_allclose(found.data[1], rows.data[0], rtol=1e-12)


def test_labels_and_masks_of_a_compiled_step_are_its_arguments():
    weights = tg.param(LOGITS[0])

    def loss(labels, seen):
        rows = tg.one_hot(labels, 5)
        mixed = tg.scaled_dot_product_attention(weights, weights, rows, seen)
        chosen, places = tg.topk(weights, 2)
        ignoring = tg.softmax_crossentropy(weights, labels, ignore_index=0, label_smoothing=0.1)
        return ignoring + tg.sum(mixed * weights) + tg.sum(chosen * places)

    step = tg.compile(loss)
    for labels in ([1, 0, 4], [0, 2, 0]):
        given = np.array(labels), RNG.random((3, 3)) > 0.3
        np.testing.assert_allclose(step(*given).item(), loss(*given).item(), rtol=1e-12)
    assert step.traces == 1
    with pytest.raises(IndexError, match="label 5"):
        tg.one_hot([1, 5], 5)


def test_topk_tells_the_places_and_one_hot_the_dtype():
    values, places = tg.topk(np.array([[3.0, 9.0, np.nan, 7.0]]), 2)
    np.testing.assert_array_equal(values.data, [[np.nan, 9.0]])
    assert type(places) is np.ndarray and places.tolist() == [[2, 1]]
    assert tg.topk([1.0], 0)[0].shape == (0,)
    assert tg.topk([1.0, 3.0, 2.0], 3)[0].data.tolist() == [3.0, 2.0, 1.0]
    assert tg.one_hot(np.array([[1]]), 2, "float32").dtype == np.float32


REFUSED = {
    "equal shapes": lambda: tg.binary_crossentropy(np.ones((3, 1)), np.ones(3)),
    "reduction='max'": lambda: tg.smooth_l1([1.0], [1.0], reduction="max"),
    "reduction='avg'": lambda: tg.softmax_crossentropy(LOGITS[0], [1, 2, 3], reduction="avg"),
    "beta=0": lambda: tg.smooth_l1([1.0], [1.0], beta=0),
    "ignore_index=0": lambda: tg.softmax_crossentropy(LOGITS, ROWS, ignore_index=0),
    "label_smoothing=1.5": lambda: tg.softmax_crossentropy(LOGITS, ROWS, label_smoothing=1.5),
    r"k of shape \(2, 2, 5, 3\)": lambda: tg.scaled_dot_product_attention(Q, V, V),
    r"a mask of shape \(5, 3\)": lambda: tg.scaled_dot_product_attention(Q, K, V, SEEN.T),
    "a mask with is_causal": lambda: tg.scaled_dot_product_attention(Q, K, V, SEEN, True),
    r"weight of shape \(2,\)": lambda: tg.rms_norm(IMAGES, [1.0, 1.0]),
    "num_groups=3": lambda: tg.group_norm(IMAGES, 3),
    "no var": lambda: tg.batch_norm(IMAGES, mean=C[0]),
    "k=4 for axis 3": lambda: tg.topk(IMAGES, 4),
    "number of channels c": lambda: tg.conv1d(np.ones((1, 2, 3)), np.ones((1, 3, 2))),
    r"stride=\(1, 2\)": lambda: tg.conv1d(np.ones((1, 2, 3)), np.ones((1, 2, 2)), stride=(1, 2)),
    r"output_pad=\(1, 1\)": lambda: tg.conv_transpose2d(
        np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)), output_pad=1
    ),
    "at least one pixel": lambda: tg.conv_transpose2d(
        np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 2)), pad=1
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_bad_input_is_refused(text):
    with pytest.raises(ValueError, match=text):
        REFUSED[text]()

"""The recipes of docs/recipes.md compute what PyTorch's layers do."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from optional import optional

import tapegraph as tg

torch = optional("torch", "needs PyTorch to compare with")

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """What the page's blocks define, all but the last one, which trains."""
    *blocks, _ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    namespace: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("recipes"))  # they save a checkpoint
        exec("\n".join(blocks), namespace)
    return SimpleNamespace(**namespace)


def take(model, layer, pairs):
    """Give a recipe's parameters PyTorch's numbers: by name, and how they lie there."""
    found = tg.parameters(model)
    assert [*found] == [*pairs]
    for name, theirs in pairs.items():
        found[name].assign(theirs.detach().numpy())
    return list(found.values())


def compare(result, leaves, theirs, tensors, seed):
    """Values and gradients are those of PyTorch."""
    np.testing.assert_allclose(result.data, theirs.detach().numpy(), **CLOSE)
    (result * seed).sum().backward()
    (theirs * torch.tensor(seed)).sum().backward()
    for leaf, tensor in zip(leaves, tensors, strict=True):
        np.testing.assert_allclose(leaf.grad, tensor(), **CLOSE)


def data(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_linear(recipes):
    torch.manual_seed(0)
    layer, model = torch.nn.Linear(4, 3, dtype=torch.float64), recipes.linear(4, 3)
    assert np.abs(model["w"].data).max() <= (6 / 7) ** 0.5
    leaves = take(model, layer, {"w": layer.weight.T, "b": layer.bias})
    x, seed = data(5, 4), data(5, 3)
    tensors = [lambda: layer.weight.grad.T, lambda: layer.bias.grad]
    compare(recipes.apply_linear(model, x), leaves, layer(torch.tensor(x)), tensors, seed)


def test_embedding(recipes):
    layer, table = torch.nn.Embedding(6, 4, dtype=torch.float64), recipes.embedding(6, 4)
    leaves = take({"t": table}, layer, {"t": layer.weight})
    ids, seed = np.array([[1, 5, 1], [0, 2, 1]]), data(2, 3, 4)
    theirs = layer(torch.tensor(ids))
    compare(recipes.apply_embedding(table, ids), leaves, theirs, [lambda: layer.weight.grad], seed)


def test_norm(recipes):
    layer, model = torch.nn.LayerNorm(4, dtype=torch.float64), recipes.norm(4)
    leaves = take(model, layer, {"gamma": layer.weight, "beta": layer.bias})
    x, seed = data(5, 4), data(5, 4) + 1.0
    tensors = [lambda: layer.weight.grad, lambda: layer.bias.grad]
    compare(recipes.apply_norm(model, x), leaves, layer(torch.tensor(x)), tensors, seed)


def test_batch_norm(recipes):
    layer, model = torch.nn.BatchNorm1d(4, dtype=torch.float64), recipes.batch_norm(4)
    leaves = take(model, layer, {"gamma": layer.weight, "beta": layer.bias})
    x, seed = data(5, 4), data(5, 4) + 1.0
    tensors = [lambda: layer.weight.grad, lambda: layer.bias.grad]
    ours = recipes.apply_batch_norm(model, x, training=True)
    compare(ours, leaves, layer(torch.tensor(x)), tensors, seed)
    np.testing.assert_allclose(model["mean"].data, layer.running_mean.numpy(), **CLOSE)
    np.testing.assert_allclose(model["var"].data, layer.running_var.numpy(), **CLOSE)
    layer.eval()
    ours, theirs = recipes.apply_batch_norm(model, x, training=False), layer(torch.tensor(x))
    np.testing.assert_allclose(ours.data, theirs.detach().numpy(), **CLOSE)


@pytest.mark.filterwarnings("ignore")
def test_block(recipes):
    d, heads, n = 8, 2, 5
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        d,
        heads,
        4 * d,
        dropout=0.0,
        activation=lambda h: torch.nn.functional.gelu(h, approximate="tanh"),
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    inner = layer.self_attn
    places = {
        "norms.0": (layer.norm1.weight, layer.norm1.bias),
        "norms.1": (layer.norm2.weight, layer.norm2.bias),
        **{
            f"attention.{name}": (inner.in_proj_weight, inner.in_proj_bias, slice(i * d, i * d + d))
            for i, name in enumerate("qkv")
        },
        "attention.out": (inner.out_proj.weight, inner.out_proj.bias),
        "mlp.0": (layer.linear1.weight, layer.linear1.bias),
        "mlp.1": (layer.linear2.weight, layer.linear2.bias),
    }
    pairs, tensors = {}, []
    for name, (weight, bias, *rows) in places.items():
        part = rows[0] if rows else slice(None)
        keys = ("gamma", "beta") if weight.ndim == 1 else ("w", "b")
        for key, tensor in zip(keys, (weight, bias), strict=True):
            pairs[f"{name}.{key}"] = tensor[part].T
            tensors.append(lambda tensor=tensor, part=part: tensor.grad[part].T)
    model = recipes.block(d)
    leaves = take(model, layer, pairs)
    x, seed = data(2, n, d), data(2, n, d) + 0.5
    mask = np.triu(np.full((n, n), -np.inf), k=1)
    theirs = layer(torch.tensor(x), src_mask=torch.tensor(mask))
    compare(recipes.apply_block(model, x, heads, mask), leaves, theirs, tensors, seed)

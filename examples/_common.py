"""What the examples share: their arguments, parameters, descent, picture, and closing lines."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

import tapegraph as tg

__all__ = [
    "arguments",
    "descend",
    "extra",
    "parameters",
    "print_engine",
    "progress",
    "pyplot",
    "save",
]


@contextlib.contextmanager
def extra() -> Iterator[None]:
    """Turn a missing optional package into the one line that helps."""
    try:
        yield
    except ModuleNotFoundError as error:
        sys.exit(
            f"This example needs {error.name}, which is not installed. "
            'Install what the examples use with: pip install "tapegraph[examples]"'
        )


# At once: nobody should train a model only to learn that it cannot be drawn.
with extra():
    import matplotlib

    matplotlib.use("Agg")  # draws to files, needs no display
    from matplotlib import pyplot
    from matplotlib.figure import Figure
    from tqdm import tqdm


def arguments(doc: str, picture: str) -> argparse.Namespace:
    """Parse the command line all examples have in common, and choose the engine it names."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--backend",
        choices=["auto", "tensorflow", "native"],
        default=tg.get_backend(),
        help="the engine that computes gradients (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of every random choice made here")
    parser.add_argument("--out", default=picture, help="where to save the picture (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    args = parser.parse_args()
    tg.set_backend(args.backend)
    return args


def progress(items: Iterable[Any], what: str) -> Any:
    """The items, with a progress bar."""
    return tqdm(items, desc=what, dynamic_ncols=True)


def parameters(rng: np.random.Generator, **shapes: tuple[int, ...]) -> SimpleNamespace:
    """Named float32 parameters: vectors are zero, the rest keep the size of what they multiply."""
    model = SimpleNamespace()
    for name, shape in shapes.items():
        # Kernels are (out, in, height, width), matrices (in, out).
        inputs = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
        scale = 0 if len(shape) == 1 else 1 / math.sqrt(inputs)
        setattr(model, name, tg.param(rng.normal(0, scale, shape), dtype=np.float32, name=name))
    return model


def descend(
    objective: Callable[[], tg.Tensor],
    model: SimpleNamespace,
    steps: int,
    lr: float,
    clip: float = math.inf,
) -> list[float]:
    """Take steps down the objective, which draws its own batch, and return every loss.

    The learning rate falls from `lr` to 0 along half a cosine. A gradient longer than `clip` is
    cut to that length.
    """
    optimizer = tg.SGD(vars(model).values(), lr)
    losses = []
    for step in (bar := progress(range(steps), "training")):
        loss = objective()
        optimizer.zero_grad()
        loss.backward()
        length = math.sqrt(sum(np.sum(p.grad**2) for p in optimizer.params))
        optimizer.lr = lr * (1 + math.cos(math.pi * step / steps)) / 2 * min(1, clip / length)
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0:
            bar.set_postfix(loss=f"{np.mean(losses[-100:]):.4f}")
    return losses


def save(figure: Figure, path: str) -> None:
    """Write the picture and say where it is."""
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture   {path}")


def print_engine() -> None:
    """Print which engine ran the last backward pass, why if natively, and what was compiled."""
    report, cache = tg.last_backward(), tg.lowering.cache_info()
    print(f"engine    {report.backend}" + (f" ({report.reason})" if report.reason else ""))
    if cache.compiles:
        print(f"cache     {cache.size} held, {cache.compiles} compiled, {cache.hits} found again")

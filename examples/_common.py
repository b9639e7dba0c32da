"""What the examples share: their arguments, parameters, descent, picture, and closing lines."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tapegraph as tg

__all__ = [
    "arguments",
    "descend",
    "extra",
    "parameters",
    "plot_noisy",
    "print_engine",
    "progress",
    "pyplot",
    "save",
    "sgd_step",
]


@contextlib.contextmanager
def extra(name: str = "examples") -> Iterator[None]:
    """Turn a missing optional package into the one line that helps."""
    try:
        yield
    except ModuleNotFoundError as error:
        sys.exit(
            f"This example needs {error.name}, which is not installed. "
            f'Install what the examples use with: pip install ".[{name}]"'
        )


# At once: nobody should train a model only to learn that it cannot be drawn.
with extra():
    import matplotlib

    matplotlib.use("Agg")  # draws to files, needs no display
    from matplotlib import pyplot
    from matplotlib.figure import Figure
    from tqdm import tqdm

# One style for all pictures.
pyplot.rcParams.update(
    {
        "axes.axisbelow": True,
        "axes.formatter.limits": (-4, 5),
        "axes.formatter.use_mathtext": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.titlesize": "medium",
        "font.size": 10,
        "legend.frameon": False,
    }
)


def arguments(
    doc: str,
    picture: str,
    compiles: str = "run the training step through tg.compile",
    compile: bool = False,
) -> argparse.Namespace:
    """Parse the command line all examples have in common, and choose the engine it names.

    `compiles` says what `--compile` does, `compile` whether it is on by default.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--backend",
        choices=["auto", "tensorflow", "native"],
        default=tg.get_backend(),
        help="the engine that computes gradients (default: %(default)s)",
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=compile,
        help=compiles + " (on unless --no-compile)" * compile,
    )
    parser.add_argument("--seed", type=int, default=0, help="of every random choice made here")
    parser.add_argument("--out", default=picture, help="the picture's file or folder (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    args = parser.parse_args()
    args.out = _place(parser, Path(args.out), picture)
    tg.set_backend(args.backend)
    return args


def _place(parser: argparse.ArgumentParser, out: Path, picture: str) -> Path:
    """The file to save to, whose folder is made now: after the training it would be too late."""
    if out.is_dir() or not out.suffix:
        out /= picture
    formats = Figure().canvas.get_supported_filetypes()
    if out.suffix[1:].lower() not in formats:
        parser.error(f"--out: {out} is no picture; it may end in .{', .'.join(sorted(formats))}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(out if out.exists() else out.parent, os.W_OK):
            raise PermissionError(f"{out} cannot be written")
    except OSError as error:
        parser.error(f"--out: no picture can be saved in the folder {out.parent}: {error}")
    return out


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


def sgd_step(
    objective: Callable[..., tg.Tensor],
    model: SimpleNamespace,
    lr: float | Callable[[int], float],
    clip: float | None = None,
    compile: bool = False,
) -> Callable[..., tg.Tensor]:
    """Make the step that takes a batch, goes down `objective(model, *batch)`, and returns its loss.

    Where the gradient is longer than `clip`, it is cut to that length.
    """
    optimizer = tg.SGD(vars(model), lr)

    def step(*batch):
        loss = objective(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            tg.clip_grad_norm(optimizer.params, clip)
        optimizer.step()
        return loss

    return tg.compile(step) if compile else step


def descend(
    step: Callable[..., tg.Tensor], draw_batch: Callable[[], tuple[np.ndarray, ...]], steps: int
) -> list[float]:
    """Take steps, each on a batch of its own, and return every loss."""
    losses = []
    for i in (bar := progress(range(steps), "training")):
        losses.append(step(*draw_batch()).item())
        if i % 10 == 0:
            bar.set_postfix(loss=f"{np.mean(losses[-100:]):.4f}")
    return losses


def plot_noisy(axis: Any, values: Iterable[float], label: str | None = None) -> None:
    """Draw values that jump from step to step, faintly, and their mean over some steps."""
    values = np.asarray(values)
    window = max(1, len(values) // 60)
    smooth = np.convolve(values, np.ones(window) / window, "valid")
    axis.plot(values, color="tab:blue", linewidth=0.5, alpha=0.35)
    axis.plot(range(window - 1, len(values)), smooth, color="tab:blue", label=label)


def save(figure: Figure, path: Path) -> None:
    """Write the picture and say where it is."""
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture   {path}")


def print_engine(step: Callable[..., Any] | None = None) -> None:
    """Print which engine ran the compiled step, or else the last backward pass, and why."""
    report, cache = tg.last_backward(), tg.lowering.cache_info()
    if hasattr(step, "explain"):
        count = "once" if step.traces == 1 else f"{step.traces} times"
        print(f"engine    {report.backend}; the training step was compiled {count}")
        return
    print(f"engine    {report.backend}" + (f" ({report.reason})" if report.reason else ""))
    if cache.compiles:
        print(f"cache     {cache.size} held, {cache.compiles} compiled, {cache.hits} found again")

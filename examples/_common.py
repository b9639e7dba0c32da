"""What the examples share: their arguments, a progress bar, a picture, the closing line."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import tapegraph as tg

__all__ = ["arguments", "engine", "extra", "progress", "pyplot", "save"]


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


def save(figure: Figure, path: str) -> None:
    """Write the picture and say where it is."""
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture   {path}")


def engine() -> str:
    """Which engine ran the last backward pass, and why if it was a fallback."""
    report = tg.last_backward()
    return report.backend + (f" ({report.reason})" if report.reason else "")

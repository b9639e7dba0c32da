"""Recover a picture from how strong its waves are, when where their crests lie is lost.

You learn that `np.fft` records: the loss compares magnitudes of a Fourier transform, and its
gradient goes back through complex numbers to real pixels. X-ray cameras measure just that: strength
and no phase. The transform is of a frame twice as wide as the picture, which settles it but for a
shift and a turn by 180 degrees. Many starts descend side by side, for most get stuck. The picture
is one of scikit-learn's digits, and the yardstick is that digit.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, print_engine, pyplot, save
from _data import digits

import tapegraph as tg
from tapegraph.optim import schedules

SIZE = 8
FRAME = (2 * SIZE, 2 * SIZE)
STARTS = 128
BELOW_BLACK = 0.1  # what negative light costs
BOUND = 1e-12  # the loss below which we call the phases found


def strengths(pictures):
    """Magnitudes of the waves in each picture, in a frame with as much room again."""
    # A little is added under the root: the magnitude of nothing has no slope.
    waves = np.fft.fft2(pictures, s=FRAME, norm="ortho")
    return np.sqrt(np.real(waves) ** 2 + np.imag(waves) ** 2 + 1e-12)


def misfits(pictures, measured):
    """By how much each picture misses the strengths, and goes below black."""
    missed = np.mean((strengths(pictures) - measured) ** 2, axis=(1, 2))
    return missed + BELOW_BLACK * np.mean(tg.relu(-pictures) ** 2, axis=(1, 2))


def new_step(pictures: tg.Tensor, measured: np.ndarray, steps: int, compile: bool):
    optimizer = tg.Adam([pictures], lr=schedules.cosine(0.3, steps))

    def step():
        each = misfits(pictures, measured)
        optimizer.zero_grad()
        np.sum(each).backward()  # pictures share no pixel: each goes down by itself
        optimizer.step()
        return np.min(each)

    return tg.compile(step) if compile else step


def aligned(picture: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The picture, turned and shifted to where it is next to the truth."""
    framed = [np.pad(p, (0, SIZE)) for p in (picture, picture[::-1, ::-1])]
    shifts = np.ndindex(*FRAME)
    moved = [np.roll(p, shift, axis=(0, 1)) for shift in shifts for p in framed]
    target = np.pad(truth, (0, SIZE))
    best = min(moved, key=lambda p: np.sum((p - target) ** 2))
    return best[:SIZE, :SIZE]


def draw(losses, panels):
    figure, axes = pyplot.subplots(
        1, 4, figsize=(14, 3.5), layout="constrained", width_ratios=[1, 1, 1, 1.3]
    )
    for axis, (title, picture) in zip(axes, panels.items(), strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
        axis.set(title=title, xticks=[], yticks=[])
    axes[-1].semilogy(losses)
    axes[-1].set(xlabel="step", ylabel="loss", title="the best of all starts")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="phase_retrieval.png", compile=True)
    rng = np.random.default_rng(args.seed)
    truth = digits(rng)[0][0][0].reshape(SIZE, SIZE).astype(np.float64)
    measured = strengths(truth[None])
    start = rng.uniform(0, 0.6, (STARTS, SIZE, SIZE))
    pictures = tg.param(start, name="pictures")
    steps = 300 if args.quick else 1000
    step = new_step(pictures, measured, steps, args.compile)
    losses = descend(step, lambda: (), steps)

    loss = misfits(pictures.numpy(), measured)
    best = loss.argmin()
    found = aligned(pictures.numpy()[best], truth)
    save(draw(losses, {"truth": truth, "start": start[best], "found": found}), args.out)
    print(f"error     {np.abs(found - truth).max():.5f} at most in a pixel, turned and shifted")
    before = aligned(start[best], truth)
    print(f"          {np.abs(before - truth).max():.5f} at the start")
    print(f"loss      {loss[best]:.1e}; {np.sum(loss < BOUND)} of {STARTS} below {BOUND}")
    print_engine(step)


if __name__ == "__main__":
    main()

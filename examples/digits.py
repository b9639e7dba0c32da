"""Train a classifier of handwritten digits, and look at what it gets wrong.

You learn the whole loop: parameters, a forward pass in plain array code, a loss, `backward()`,
and gradient descent on mini-batches with a learning rate that decays; and `tg.compile`, which makes
one program of all that, and runs an epoch of it in one call. The data are scikit-learn's 1,797
scanned digits of 8 x 8 pixels; a fifth of them is kept for the test.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np
from _common import arguments, print_engine, progress, pyplot, save
from _data import digits

import tapegraph as tg
from tapegraph.optim import schedules

WIDTHS = [64, 128, 64, 10]
BATCH = 32
PEAK_LR = 0.2
EPOCHS_MEASURED = 16  # the second half, when all is compiled


def new_layers(rng: np.random.Generator):
    """He initialisation: each layer keeps the scale of what passes through it."""
    return [
        (
            tg.param(rng.normal(0, math.sqrt(2 / n), (n, m)), dtype=np.float32, name=f"W{i}"),
            tg.param(np.zeros(m), dtype=np.float32, name=f"b{i}"),
        )
        for i, (n, m) in enumerate(pairwise(WIDTHS), start=1)
    ]


def logits(layers, x):
    *hidden, (W, b) = layers
    for W_hidden, b_hidden in hidden:
        x = tg.relu(x @ W_hidden + b_hidden)
    return x @ W + b


@tg.no_grad()
def predict(layers, images) -> np.ndarray:
    return logits(layers, tg.tensor(images)).data.argmax(axis=1)


def new_step(layers, steps: int):
    """Make the training step: it takes a batch, updates the layers, and returns the loss."""
    parameters = [p for layer in layers for p in layer]
    optimizer = tg.SGD(parameters, lr=schedules.cosine(PEAK_LR, steps))

    def step(images, labels):
        loss = tg.softmax_crossentropy(logits(layers, images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def train(layers, train_set, test_set, epochs: int, rng: np.random.Generator, compile: bool):
    """Return the mean loss and the test accuracy of every epoch, and the step."""
    step = new_step(layers, epochs * (len(train_set[0]) // BATCH))
    if compile:
        step = tg.compile(step, xla=True)
    losses, accuracies = [], []
    for _ in (bar := progress(range(epochs), "training")):
        losses.append(np.mean(run(step, shuffled(train_set, rng)), dtype=float))
        accuracies.append(np.mean(predict(layers, test_set[0]) == test_set[1]))
        bar.set_postfix(loss=f"{losses[-1]:.4f}", test=f"{accuracies[-1]:.1%}")
    return losses, accuracies, step


def shuffled(train_set, rng: np.random.Generator):
    # All batches of one size: another one would be another trace of the step.
    return tg.data.epoch(*train_set, size=BATCH, shuffle=True, rng=rng, drop_last=True)


def run(step, epoch):
    """Take a step for each batch, in one call of a compiled step; return the losses."""
    if hasattr(step, "scan"):
        return step.scan(epoch).data
    return [step(*batch).item() for batch in epoch]


def seconds_an_epoch(layers, train_set):
    """Of eager steps, and of scans in each engine, taken in turns on copies of the layers.

    The median of an epoch once all is compiled, and what the epochs before took more than that.
    """

    def copied_step():
        return new_step([[tg.param(p.data) for p in layer] for layer in layers], steps)

    rng = np.random.default_rng(0)
    steps = EPOCHS_MEASURED * (len(train_set[0]) // BATCH)
    timed = {"eager": ("native", copied_step())}
    for engine in dict.fromkeys(("native", tg.last_backward().backend)):  # the one that trained
        timed[engine] = engine, tg.compile(copied_step(), xla=True)
    taken = {name: [] for name in timed}
    for _ in range(EPOCHS_MEASURED):
        for name, (engine, step) in timed.items():
            with tg.use_backend(engine):
                start = time.perf_counter()
                run(step, shuffled(train_set, rng))
                taken[name].append(time.perf_counter() - start)
    medians = {name: np.median(times[EPOCHS_MEASURED // 2 :]) for name, times in taken.items()}
    return {
        name: (median, sum(taken[name]) - EPOCHS_MEASURED * median)
        for name, median in medians.items()
    }


def draw(losses, accuracies, images, labels, predicted):
    """The training curves, and test digits: every mistake first (red), then some hits (green)."""
    figure = pyplot.figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.3])

    above, below = left.subplots(2, 1, sharex=True)
    epochs = range(1, len(losses) + 1)
    above.semilogy(epochs, losses)
    above.set(ylabel="training loss")
    below.plot(epochs, accuracies)
    below.set(xlabel="epoch", ylabel="test accuracy", title=f"at the end {accuracies[-1]:.1%}")
    below.yaxis.set_major_formatter("{x:.0%}")
    below.yaxis.get_major_locator().set_params(steps=[1, 2, 5, 10])

    right.suptitle("predicted (true, where it differs)")
    mistakes_first = np.argsort(predicted == labels, kind="stable")
    for cell, i in zip(right.subplots(5, 8).flat, mistakes_first[:40], strict=True):
        hit = predicted[i] == labels[i]
        cell.imshow(images[i].reshape(8, 8), cmap="gray_r")
        cell.set_title(
            f"{predicted[i]}" if hit else f"{predicted[i]} ({labels[i]})",
            color="tab:green" if hit else "tab:red",
            fontsize=10,
        )
        cell.axis("off")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="digits.png", compile=True)
    rng = np.random.default_rng(args.seed)
    train_set, test_set = digits(rng)
    layers = new_layers(rng)
    epochs = 5 if args.quick else 40
    losses, accuracies, step = train(layers, train_set, test_set, epochs, rng, args.compile)
    predicted = predict(layers, test_set[0])
    save(draw(losses, accuracies, *test_set, predicted), args.out)
    print(f"accuracy  {accuracies[-1]:.2%} of {len(predicted)} test digits")
    print_engine(step)
    if args.compile:
        taken = seconds_an_epoch(layers, train_set)
        eager, _ = taken.pop("eager")
        per_step = 1000 / (len(train_set[0]) // BATCH)
        print(f"speed     {per_step * eager:.2f} ms a training step, run eagerly by NumPy")
        for engine, (scan, compiling) in taken.items():
            print(
                f"          {per_step * scan:.2f} ms compiled, engine {engine}: "
                f"{eager / scan:.1f} times as fast, after {max(compiling, 0):.1f} s of compiling"
            )


if __name__ == "__main__":
    main()

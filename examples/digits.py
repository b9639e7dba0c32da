"""Train a classifier of handwritten digits, and look at what it gets wrong.

You learn the whole loop: parameters, a forward pass in plain array code, a loss, `backward()`,
and gradient descent on mini-batches with a learning rate that decays; and `tg.compile`, which makes
one program of all that. The data are scikit-learn's 1,797 scanned digits of 8 x 8 pixels; a fifth
of them is kept for the test.
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
WARM_UP = 10  # steps of which the first two are recorded and compared


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
    images, labels = train_set
    count = len(images) // BATCH
    step = new_step(layers, epochs * count)
    if compile:
        step = tg.compile(step)
    losses, accuracies = [], []
    for _ in (bar := progress(range(epochs), "training")):
        # All of one size: another one would be another trace of the step.
        batches = rng.permutation(len(images))[: count * BATCH].reshape(count, BATCH)
        losses.append(np.mean([step(images[b], labels[b]).item() for b in batches]))
        accuracies.append(np.mean(predict(layers, test_set[0]) == test_set[1]))
        bar.set_postfix(loss=f"{losses[-1]:.4f}", test=f"{accuracies[-1]:.1%}")
    return losses, accuracies, step


def milliseconds_a_step(layers, images, labels, turns: int = 200):
    """Medians of eager steps, and of compiled ones in each engine, taken in turns on copies."""

    def copied_step():
        return new_step([[tg.param(p.data) for p in layer] for layer in layers], turns)

    engines = dict.fromkeys(("native", tg.get_backend()))
    steps = {"eager": ("native", copied_step())}
    steps |= {name: (name, tg.compile(copied_step())) for name in engines if name != "auto"}
    taken = {name: [] for name in steps}
    for turn in range(turns + WARM_UP):
        for name, (engine, step) in steps.items():
            with tg.use_backend(engine):
                start = time.perf_counter()
                step(images, labels)
            if turn >= WARM_UP:
                taken[name].append(1000 * (time.perf_counter() - start))
    return {name: np.median(times) for name, times in taken.items()}


def draw(losses, accuracies, images, labels, predicted):
    """The training curves, and test digits: every mistake first (red), then some hits (green)."""
    figure = pyplot.figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.3])

    axis = left.subplots()
    axis.semilogy(losses, color="tab:blue")
    axis.set(xlabel="epoch", title=f"test accuracy {accuracies[-1]:.1%}")
    axis.set_ylabel("training loss", color="tab:blue")
    twin = axis.twinx()
    twin.plot(accuracies, color="tab:orange")
    twin.set_ylabel("test accuracy", color="tab:orange")
    twin.yaxis.set_major_formatter("{x:.0%}")

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
        taken = milliseconds_a_step(layers, *(part[:BATCH] for part in train_set))
        eager = taken.pop("eager")
        print(f"a step    {eager:.2f} ms eagerly")
        for engine, compiled in taken.items():
            times = f"{eager / compiled:.1f} times as fast"
            print(f"          {compiled:.2f} ms compiled, engine {engine}: {times}")


if __name__ == "__main__":
    main()

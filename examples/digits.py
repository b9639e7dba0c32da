"""Train a classifier of handwritten digits, and look at what it gets wrong.

You learn the whole loop: parameters, a forward pass in plain array code, a loss, `backward()`,
and gradient descent on mini-batches with a learning rate that decays. The data are scikit-learn's
1,797 scanned digits of 8 x 8 pixels; a fifth of them is kept for the test.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from _common import arguments, print_engine, progress, pyplot, save
from _data import digits

import tapegraph as tg

WIDTHS = [64, 128, 64, 10]
BATCH = 32
PEAK_LR = 0.2


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


def train(layers, train_set, test_set, epochs: int, rng: np.random.Generator):
    """Return the mean loss and the test accuracy of every epoch."""
    images, labels = train_set
    optimizer = tg.SGD([p for layer in layers for p in layer], lr=PEAK_LR)
    losses, accuracies = [], []
    for epoch in (bar := progress(range(epochs), "training")):
        optimizer.lr = PEAK_LR * (1 + math.cos(math.pi * epoch / epochs)) / 2
        batches = np.array_split(rng.permutation(len(images)), len(images) // BATCH)
        epoch_loss = 0.0
        for batch in batches:
            loss = tg.softmax_crossentropy(logits(layers, images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item() / len(batches)
        losses.append(epoch_loss)
        accuracies.append(np.mean(predict(layers, test_set[0]) == test_set[1]))
        bar.set_postfix(loss=f"{losses[-1]:.4f}", test=f"{accuracies[-1]:.1%}")
    return losses, accuracies


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
    args = arguments(__doc__, picture="digits.png")
    rng = np.random.default_rng(args.seed)
    train_set, test_set = digits(rng)
    layers = new_layers(rng)
    losses, accuracies = train(layers, train_set, test_set, 5 if args.quick else 40, rng)
    predicted = predict(layers, test_set[0])
    save(draw(losses, accuracies, *test_set, predicted), args.out)
    print(f"accuracy  {accuracies[-1]:.2%} of {len(predicted)} test digits")
    print_engine()


if __name__ == "__main__":
    main()

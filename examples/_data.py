"""The real data that examples share: scanned digits, and the text of Python's documentation."""

from __future__ import annotations

from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from _common import extra

__all__ = ["DOCUMENTATION", "digits", "text"]

DOCUMENTATION = "\n".join(topics.values())  # what help("topics") lists, in this Python


def digits(rng: np.random.Generator):
    """Shuffle scikit-learn's digits, scale them to 0..1, and keep the last fifth for the test."""
    with extra():
        from sklearn.datasets import load_digits
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    images, labels = images[order].astype(np.float32) / 16, labels[order]
    cut = len(images) * 4 // 5
    return (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


class Text(NamedTuple):
    """The documentation, letter by letter, as positions in its alphabet."""

    alphabet: str
    train: np.ndarray
    test: np.ndarray  # the last tenth

    def windows(self, rng: np.random.Generator, count: int, length: int) -> np.ndarray:
        """Passages drawn from the training text, one a row."""
        starts = rng.integers(len(self.train) - length, size=(count, 1))
        return self.train[starts + np.arange(length)]

    def test_windows(self, length: int) -> np.ndarray:
        """The test text cut into passages that overlap in one letter."""
        starts = np.arange(0, len(self.test) - length, length - 1)[:, None]
        return self.test[starts + np.arange(length)]

    def wordiest(self, length: int) -> np.ndarray:
        """The passage of the test text with the most lower-case letters: prose."""
        passages = self.test_windows(length)
        lower = [letter.islower() for letter in self.alphabet]
        return passages[np.take(lower, passages).sum(axis=1).argmax()]

    def letters(self, ids: np.ndarray) -> str:
        """A passage as it reads."""
        return "".join(self.alphabet[i] for i in ids)

    def bigram_bits(self) -> float:
        """Bits a letter of the test text, guessed from the one before by counting pairs."""
        n = len(self.alphabet)
        pairs = np.bincount(self.train[:-1] * n + self.train[1:], minlength=n * n).reshape(n, n) + 1
        chances = pairs / pairs.sum(axis=1, keepdims=True)
        return -np.mean(np.log2(chances[self.test[:-1], self.test[1:]]))


def text() -> Text:
    """The documentation's ASCII letters."""
    letters = np.frombuffer(DOCUMENTATION.encode("ascii", "ignore"), dtype=np.uint8)
    alphabet, ids = np.unique(letters, return_inverse=True)
    cut = len(ids) * 9 // 10
    return Text(bytes(alphabet).decode("ascii"), ids[:cut], ids[cut:])

"""A training script that records itself, as an example.

A network of two layers learns made-up data with NumPy. The marked lines are all that recording requires. Try it::

    postrun record --report --out traces -- python -m postrun.commands.example_training
    python -m postrun.commands.example_training --out traces && postrun report traces

One problem is planted: the data loading of step 120 waits 0.6 s, as on a hanging file system. A seed fixes the numbers that are learned,
not the times.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

# Threads of matrix products that outnumber the cores wait for each other; one is enough for products as small as these.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ..native import capture  # (1) what records

STEPS: Final = 200
STALLED_STEP: Final = 120
STALL_S: Final = 0.6
EXAMPLES: Final = 8192
BATCH: Final = 512
FEATURES: Final = 1024
HIDDEN: Final = 512
CLASSES: Final = 10
LEARNING_RATE: Final = 0.05
MOMENTUM: Final = 0.9

Array = np.ndarray[Any, np.dtype[np.float32]]
Labels = np.ndarray[Any, np.dtype[np.int64]]


def prepare(file: Path, random: np.random.Generator) -> None:
    """Write noise as examples; a fixed random projection determines their classes."""
    features = random.standard_normal((EXAMPLES, FEATURES), dtype=np.float32)
    labels = (features @ random.standard_normal((FEATURES, CLASSES), dtype=np.float32)).argmax(axis=1)
    np.concatenate([features, labels[:, None].astype(np.float32)], axis=1).tofile(file)


class Data:
    """The file of examples: each call reads a batch and blurs it a little, so that no two batches are equal."""

    def __init__(self, file: Path, random: np.random.Generator) -> None:
        self.file, self.random = file, random
        self.row_bytes = 4 * (FEATURES + 1)

    def batch(self) -> tuple[Array, Labels]:
        first = int(self.random.integers(0, EXAMPLES - BATCH))
        with self.file.open("rb") as opened:
            opened.seek(first * self.row_bytes)
            rows = np.fromfile(opened, np.float32, BATCH * (FEATURES + 1)).reshape(BATCH, FEATURES + 1)
        features = rows[:, :FEATURES] + 0.1 * self.random.standard_normal((BATCH, FEATURES), dtype=np.float32)
        return features, rows[:, FEATURES].astype(np.int64)


class Network:
    """Two layers with a ReLU between them, and momentum."""

    def __init__(self, random: np.random.Generator) -> None:
        self.weights = [
            random.standard_normal(shape, dtype=np.float32) * np.float32(np.sqrt(2 / shape[0]))
            for shape in ((FEATURES, HIDDEN), (HIDDEN, CLASSES))
        ]
        self.velocity = [np.zeros_like(weights) for weights in self.weights]

    def forward(self, features: Array) -> tuple[Array, Array]:
        hidden = np.maximum(features @ self.weights[0], 0)
        return hidden, hidden @ self.weights[1]

    def backward(self, features: Array, hidden: Array, error: Array) -> list[Array]:
        inner = (error @ self.weights[1].T) * (hidden > 0)
        return [features.T @ inner, hidden.T @ error]

    def optimize(self, gradients: list[Array]) -> None:
        for weights, velocity, gradient in zip(self.weights, self.velocity, gradients, strict=True):
            velocity *= MOMENTUM
            velocity -= LEARNING_RATE * gradient
            weights += velocity


def loss_of(scores: Array, labels: Labels) -> tuple[float, float, Array]:
    """Return the cross entropy, the accuracy, and the gradient of the scores."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    at = np.arange(len(labels)), labels
    loss, accuracy = float(-np.log(chances[at] + 1e-9).mean()), float((scores.argmax(axis=1) == labels).mean())
    chances[at] -= 1
    return loss, accuracy, chances / len(labels)


def train(file: Path, *, seed: int = 1, steps: int = STEPS, stalled_step: int = STALLED_STEP, stall_s: float = STALL_S) -> float:
    """Train and record; return the last loss."""
    random = np.random.default_rng(abs(seed))
    with capture.annotate("prepare data"):
        prepare(file, random)
    data, network, loss = Data(file, random), Network(random), 0.0
    for number in range(steps):
        with capture.annotate("step", value=number):  # (2) a step: a name, and its number
            with capture.annotate("data loading"):  # (3) its parts
                features, labels = data.batch()
                if number == stalled_step:
                    time.sleep(stall_s)  # the planted problem
            with capture.annotate("forward"):
                hidden, scores = network.forward(features)
                loss, accuracy, error = loss_of(scores, labels)
            with capture.annotate("backward"):
                gradients = network.backward(features, hidden, error)
            with capture.annotate("optimizer"):
                network.optimize(gradients)
        capture.counter("loss", loss)  # (4) a number to follow over time
        capture.counter("accuracy", accuracy)
    return loss


def main() -> None:
    """Train; record to ``--out``, or to the folder that `postrun record` sets."""
    parser = argparse.ArgumentParser(
        prog="python -m postrun.commands.example_training", description="A small training that records itself."
    )
    parser.add_argument("--out", help="folder for the trace file; without it, only `postrun record` and POSTRUN_CAPTURE=1 record")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    recording: AbstractContextManager[Any] = capture.session(args.out, sample_ms=100) if args.out else nullcontext()  # (5) where to
    with tempfile.TemporaryDirectory(prefix="postrun-example-", ignore_cleanup_errors=True) as folder, recording:
        loss = train(Path(folder) / "examples.bin", seed=args.seed, steps=args.steps)
    print(f"loss after {args.steps} steps: {loss:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()

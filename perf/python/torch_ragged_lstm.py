#!/usr/bin/env python3
"""An LSTM over sequences of different lengths: windrow.torch compared with nn.LSTM of PyTorch, on one core.

    PYTHONPATH=build/release/python taskset -c 1 perf/python/torch_ragged_lstm.py [--data DIR] [--hidden 64 256]

The lengths are those of the sentences of the Stanford Sentiment Treebank in DIR/train.txt, or random ones. A model is
an embedding, the LSTM, and a classifier of each word. A step contains the forward pass, the backward pass and gradient
descent. Losses and gradients are compared first.

  windrow  a windrow.torch.Module; an engine of one worker
  packed   nn.LSTM over a PackedSequence; the words are put into its order before the measurement
  padded   nn.LSTM with pack_padded_sequence of the padded, embedded words, the usual way
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
from typing import Any

os.environ.setdefault("WINDROW_WORKERS", "1")
import torch
import torch.nn.functional as F
from side_by_side import Figures, steps
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_sequence

import windrow
import windrow.torch

WORDS, CLASSES = 10_000, 10


class Batch:
    """Sequences from the longest to the shortest, in the forms that the variants need. In windrow's order (ragged), the
    words of a sequence follow each other. In the order of PackedSequence (words), the first words of all sequences come
    first, then their second words, and so on."""

    def __init__(self, lengths: list[int], function: windrow.VertexFunction | None) -> None:
        lengths = sorted(lengths, reverse=True)
        sequences = [torch.randint(WORDS, (length,)) for length in lengths]
        self.lengths = torch.tensor(lengths)
        self.padded = pad_sequence(sequences, batch_first=True)
        packed = pack_sequence(sequences)
        self.words, self.sizes = packed.data, packed.batch_sizes
        self.labels = self.words % CLASSES
        self.ragged = torch.cat(sequences)
        self.ragged_labels = self.ragged % CLASSES
        if function is not None:
            samples = [{"children": [[]] + [[v] for v in range(length - 1)]} for length in lengths]
            self.graphs = windrow.Graphs.from_lists(function, samples)


class Model(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, hidden, sparse=True)
        self.lstm = self.make_lstm(hidden)
        self.head = torch.nn.Linear(hidden, CLASSES)

    def make_lstm(self, hidden: int) -> torch.nn.Module:
        return torch.nn.LSTM(hidden, hidden, batch_first=True)

    def loss(self, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(states), labels, reduction="sum")


class Packed(Model):
    def forward(self, batch: Batch) -> torch.Tensor:
        return self.loss(self.lstm(PackedSequence(self.words(batch.words), batch.sizes))[0].data, batch.labels)


class Padded(Model):
    def forward(self, batch: Batch) -> torch.Tensor:
        packed = pack_padded_sequence(self.words(batch.padded), batch.lengths, batch_first=True)
        return self.loss(self.lstm(packed)[0].data, batch.labels)


class Windrow(Model):
    def make_lstm(self, n: int) -> windrow.torch.Module:
        parameters = windrow.Parameters(seed=1)
        w_in, w, bias = (parameters.add(name, rows, 4 * n) for name, rows in (("w_in", n), ("w", n), ("bias", 1)))

        @windrow.vertex_function(arity=1)
        def lstm(v: windrow.Vertex) -> None:
            h, c = v.state("h", n), v.state("c", n)
            gates = v.pull_row("words", n) @ w_in + v.gather(0, h) @ w + bias  # i, f, o, g
            sigmoids = windrow.sigmoid(gates[: 3 * n])
            memory = sigmoids[:n] * windrow.tanh(gates[3 * n :]) + sigmoids[n : 2 * n] * v.gather(0, c)
            own = sigmoids[2 * n :] * windrow.tanh(memory)
            v.scatter(h, own)
            v.scatter(c, memory)
            v.push("h", own)

        return windrow.torch.Module(lstm, parameters, "h", groups=1, op_flops=100_000_000)  # for one core

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.loss(self.lstm(batch.graphs, words=self.words(batch.ragged)), batch.ragged_labels)


VARIANTS = {"windrow": Windrow, "packed": Packed, "padded": Padded}


def gates_of(matrix: torch.Tensor) -> torch.Tensor:
    """Changes the order of gates from i, f, g, o in rows (PyTorch) to i, f, o, g in columns (windrow)."""
    i, f, g, o = matrix.view(4, -1, matrix.shape[1] if matrix.dim() == 2 else 1)
    return torch.cat((i, f, o, g)).t()


def values_of(model: Model) -> dict[str, torch.Tensor]:
    """All parameters by the names of Windrow's, in the shapes of the model."""
    values: dict[str, Any] = {"words": model.words.weight, "head": model.head.weight, "head_bias": model.head.bias}
    lstm = model.lstm
    if isinstance(lstm, windrow.torch.Module):
        return values | {"w_in": lstm.w_in, "w": lstm.w, "bias": lstm.bias}
    return values | {"w_in": lstm.weight_ih_l0, "w": lstm.weight_hh_l0, "bias": lstm.bias_ih_l0}


def comparable(model: Model, name: str, value: torch.Tensor) -> torch.Tensor:
    of_lstm = name in ("w_in", "w", "bias") and not isinstance(model.lstm, windrow.torch.Module)
    return gates_of(value) if of_lstm else value.to_dense()


def initialise(models: dict[str, Model], bound: float) -> None:
    """Gives all variants the same values."""
    with torch.no_grad():
        drawn: dict[str, torch.Tensor] = {}
        for name, value in values_of(next(iter(models.values()))).items():
            drawn[name] = torch.empty_like(value).uniform_(-bound, bound)
        for model in models.values():
            for name, value in values_of(model).items():
                if isinstance(model.lstm, windrow.torch.Module) or name not in ("w_in", "w", "bias"):
                    value.copy_(drawn[name])
                else:
                    i, f, o, g = drawn[name].t().chunk(4)
                    value.copy_(torch.cat((i, f, g, o)).view_as(value))
            if isinstance(model.lstm, torch.nn.LSTM):
                model.lstm.bias_hh_l0.zero_()


def require_equal(models: dict[str, Model], batches: dict[str, list[Batch]]) -> None:
    """Raises an error unless all variants compute the same loss and gradients."""
    expected: dict[str, torch.Tensor] = {}
    for variant, model in models.items():
        loss = model(batches[variant][0])
        loss.backward()
        found = {"loss": loss.detach()}
        found |= {name: comparable(model, name, value.grad) for name, value in values_of(model).items()}
        model.zero_grad()
        expected = expected or found
        for name, value in found.items():
            largest = float(expected[name].abs().max())
            message = f"{variant}: another gradient of {name}"
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5 * largest, msg=message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--batch", type=int, default=64, help="sequences in a minibatch")
    parser.add_argument("--steps", type=int, default=16, help="minibatches in a repetition")
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(1)
    count = options.batch * options.steps
    if options.data:
        lines = (options.data / "train.txt").read_text("utf-8").splitlines()[:count]
        lengths = [line.count("(") // 2 + 1 for line in lines]  # a binary tree of n words has 2n - 1 brackets
    else:
        lengths = [max(1, int(random.gauss(19.2, 9))) for _ in range(count)]
    for hidden in options.hidden:
        models = {name: variant(hidden) for name, variant in VARIANTS.items()}
        torch.manual_seed(1)
        initialise(models, hidden**-0.5)
        batches: dict[str, list[Batch]] = {}
        for name, model in models.items():
            function = getattr(model.lstm, "function", None)
            torch.manual_seed(2)
            some = [lengths[i : i + options.batch] for i in range(0, count, options.batch)]
            batches[name] = [Batch(part, function) for part in some]
        require_equal(models, batches)

        figures = Figures({name: steps(models[name], batches[name]) for name in models}, options.repetitions)
        figures.print(f"LSTM, hidden {hidden}, batch {options.batch}", "windrow", options.steps)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A Tree-LSTM inside a PyTorch model: windrow.torch compared with PyTorch batched by hand, on one core.

    PYTHONPATH=build/release/python taskset -c 1 perf/python/torch_tree_lstm.py [--data DIR] [--hidden 32 256]

DIR contains train.txt of the Stanford Sentiment Treebank; without it, trees are random. The cell is the binary N-ary
Tree-LSTM of Tai, Socher and Manning 2015: leaves have words, and all gates of an inner vertex depend on both children.
All variants share the embedding, the classifier, the loss at every vertex and the optimiser of torch. A step contains
the forward pass, the backward pass and the optimiser. What a variant needs to know of the trees (levels, rows of
children) is found before the measurement. Losses and gradients are compared first.

  windrow    windrow.torch.Module, engine of one worker
  depths     by distance from the root: the children of a batch are the whole batch before it, so nothing is gathered
             from far. The fastest that we found.
  levels     by distance from the leaves: children are gathered from one tensor of all states
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
from side_by_side import Figures

import windrow
import windrow.torch

CLASSES = 5


class Trees:
    """Vertices of all trees, children first: the root of a tree is its last vertex."""

    def __init__(self, path: pathlib.Path | None, count: int) -> None:
        nested = windrow.parse_brackets(path.read_text("utf-8")) if path else [random_tree() for _ in range(count)]
        numbers: dict[str, int] = {}
        self.trees: list[list[tuple[int, int, list[int]]]] = []  # label, word or -1, children
        for tree in nested[:count]:
            vertices: list[tuple[int, int, list[int]]] = []

            def add(node: Any) -> int:
                label, *parts = node
                leaf = isinstance(parts[0], str)
                children = [] if leaf else [add(part) for part in parts]
                vertices.append((int(label), numbers.setdefault(parts[0], len(numbers)) if leaf else -1, children))
                return len(vertices) - 1

            add(tree)
            self.trees.append(vertices)
        self.words = len(numbers)


def random_tree() -> Any:
    """The sizes of the treebank: 19 words, as deep as random splits are."""

    def tree(words: int) -> Any:
        if words == 1:
            return (str(random.randrange(CLASSES)), f"w{int(random.paretovariate(1)) % 10000}")
        left = random.randint(1, words - 1)
        return (str(random.randrange(CLASSES)), tree(left), tree(words - left))

    return tree(max(1, int(random.gauss(19.2, 9))))


class Model(torch.nn.Module):
    """Around the cell of a variant: the same for all."""

    def __init__(self, cell: torch.nn.Module, words: int, hidden: int) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(words, hidden, sparse=True)
        self.cell = cell
        self.head = torch.nn.Linear(hidden, CLASSES)

    def forward(self, batch: Any) -> torch.Tensor:
        states = self.cell(self.words(batch.words), batch)
        return F.cross_entropy(self.head(states), batch.labels, reduction="sum")


class Batch:
    """A minibatch, with the vertices in some order: leaves in `leaves`, from which the words are."""

    def __init__(self, trees: list[list[tuple[int, int, list[int]]]], order: list[tuple[int, int]]) -> None:
        self.labels = torch.tensor([trees[t][v][0] for t, v in order])
        self.words = torch.tensor([trees[t][v][1] for t, v in order if trees[t][v][1] >= 0])


# Variants: how a minibatch of trees is prepared, and the cell.


class Weights(torch.nn.Module):
    """Gates i, o, u of leaves; i, o, left f, right f, u of inner vertices."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.leaf = torch.nn.Parameter(torch.empty(hidden, 3 * hidden))
        self.leaf_bias = torch.nn.Parameter(torch.empty(1, 3 * hidden))
        self.inner = torch.nn.Parameter(torch.empty(2 * hidden, 5 * hidden))
        self.inner_bias = torch.nn.Parameter(torch.empty(1, 5 * hidden))

    def leaves(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        io, u = torch.addmm(self.leaf_bias, words, self.leaf).split((2 * self.hidden, self.hidden), 1)
        i, o = io.sigmoid().chunk(2, 1)
        c = i * u.tanh()
        return o * c.tanh(), c

    def inners(self, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """h and c: (vertices, 2 hidden), both children beside each other."""
        n = self.hidden
        sigmoids, u = torch.addmm(self.inner_bias, h, self.inner).split((4 * n, n), 1)
        sigmoids = sigmoids.sigmoid()
        i, o, f_left, f_right = sigmoids.chunk(4, 1)
        c_left, c_right = c.chunk(2, 1)
        c = torch.addcmul(torch.addcmul(i * u.tanh(), f_left, c_left), f_right, c_right)
        return o * c.tanh(), c


def heights_of(tree: list[tuple[int, int, list[int]]]) -> list[int]:
    heights: list[int] = []
    for _, _, children in tree:
        heights.append(1 + max((heights[child] for child in children), default=-1))
    return heights


class LevelsBatch(Batch):
    def __init__(self, trees: list[list[tuple[int, int, list[int]]]]) -> None:
        heights = [heights_of(tree) for tree in trees]
        order = sorted(((t, v) for t, tree in enumerate(trees) for v in range(len(tree))), key=lambda x: heights[x[0]][x[1]])
        super().__init__(trees, order)
        row = {vertex: number for number, vertex in enumerate(order)}
        levels: dict[int, list[int]] = {}
        for t, v in order:
            levels.setdefault(heights[t][v], []).extend(row[t, child] for child in trees[t][v][2])
        self.children = [torch.tensor(levels[height]) for height in sorted(levels) if height > 0]
        self.rows = len(order)


class Levels(Weights):
    def forward(self, words: torch.Tensor, batch: LevelsBatch) -> torch.Tensor:
        n = self.hidden
        states = words.new_empty(batch.rows, 2 * n)  # h and c
        begin = len(words)
        states[:begin] = torch.cat(self.leaves(words), 1)
        for children in batch.children:
            below = states.index_select(0, children)
            both = below[:, :n].reshape(-1, 2 * n), below[:, n:].reshape(-1, 2 * n)
            made = torch.cat(self.inners(*both), 1)
            states[begin : begin + len(made)] = made
            begin += len(made)
        return states[:, :n]


class DepthsBatch(Batch):
    """Depths from the deepest one. Siblings are neighbours, and a depth has the order of its parents."""

    def __init__(self, trees: list[list[tuple[int, int, list[int]]]]) -> None:
        depths = [[(t, len(tree) - 1) for t, tree in enumerate(trees)]]
        while below := [(t, child) for t, v in depths[-1] for child in trees[t][v][2]]:
            depths.append(below)
        depths.reverse()
        is_leaf = [[not trees[t][v][2] for t, v in depth] for depth in depths]
        # Rows of a depth are first its leaves, then its inner vertices; `rows` brings siblings together.
        made = [
            sorted(range(len(depth)), key=lambda place: not leaf[place]) for depth, leaf in zip(depths, is_leaf)
        ]
        self.leaves = [sum(leaf) for leaf in is_leaf]
        self.rows = [torch.tensor(sorted(range(len(order)), key=order.__getitem__)) for order in made]
        super().__init__(trees, [depth[place] for depth, order in zip(depths, made) for place in order])


class Depths(Weights):
    def forward(self, words: torch.Tensor, batch: DepthsBatch) -> torch.Tensor:
        n = self.hidden
        h_leaves, c_leaves = (states.split(batch.leaves) for states in self.leaves(words))
        h, c, all_h = h_leaves[0], c_leaves[0], [h_leaves[0]]
        for h_leaf, c_leaf, rows in zip(h_leaves[1:], c_leaves[1:], batch.rows):
            h, c = self.inners(h.index_select(0, rows).view(-1, 2 * n), c.index_select(0, rows).view(-1, 2 * n))
            if len(h_leaf):
                h, c = torch.cat((h_leaf, h)), torch.cat((c_leaf, c))
            all_h.append(h)
        return torch.cat(all_h)


def windrow_cell(hidden: int) -> windrow.torch.Module:
    n = hidden
    parameters = windrow.Parameters(seed=1)
    leaf, leaf_bias = parameters.add("leaf", n, 3 * n), parameters.add("leaf_bias", 1, 3 * n)
    inner, inner_bias = parameters.add("inner", 2 * n, 5 * n), parameters.add("inner_bias", 1, 5 * n)

    def finish(v: windrow.Vertex, h: windrow.State, c: windrow.State, memory: windrow.Expr, out: windrow.Expr) -> None:
        own = out * windrow.tanh(memory)
        v.scatter(c, memory)
        v.scatter(h, own)
        v.push("h", own)

    @windrow.vertex_function(arity=0)
    def leaves(v: windrow.Vertex) -> None:
        h, c = v.state("h", n), v.state("c", n)
        gates = v.pull_row("words", n) @ leaf + leaf_bias
        finish(v, h, c, windrow.sigmoid(gates[:n]) * windrow.tanh(gates[2 * n :]), windrow.sigmoid(gates[n : 2 * n]))

    @windrow.vertex_function(arity=2)
    def inners(v: windrow.Vertex) -> None:
        h, c = v.state("h", n), v.state("c", n)
        gates = windrow.concat([v.gather(0, h), v.gather(1, h)]) @ inner + inner_bias
        i, o, left, right = (windrow.sigmoid(gates[k * n : (k + 1) * n]) for k in range(4))
        memory = i * windrow.tanh(gates[4 * n :]) + left * v.gather(0, c) + right * v.gather(1, c)
        finish(v, h, c, memory, o)

    return windrow.torch.Module(windrow.VertexFunction("tree_lstm", [leaves, inners]), parameters, "h")


class WindrowBatch(Batch):
    def __init__(self, trees: list[list[tuple[int, int, list[int]]]], function: windrow.VertexFunction) -> None:
        super().__init__(trees, [(t, v) for t, tree in enumerate(trees) for v in range(len(tree))])
        samples = [
            {"children": [children for _, _, children in tree], "kinds": [int(bool(children)) for _, _, children in tree]}
            for tree in trees
        ]
        self.graphs = windrow.Graphs.from_lists(function, samples)
        leaf = torch.tensor([word >= 0 for tree in trees for _, word, _ in tree])
        self.rows = (leaf.cumsum(0) - 1).to(torch.int32)  # of the words


class Windrow(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.module = windrow_cell(hidden)

    def forward(self, words: torch.Tensor, batch: WindrowBatch) -> torch.Tensor:
        return self.module(batch.graphs, words=(words, batch.rows))


def compare(models: dict[str, Model], batches: dict[str, list[Any]]) -> None:
    """Raises an error unless all variants compute the same loss and gradients."""
    found = {}
    for name, model in models.items():
        loss = model(batches[name][0])
        loss.backward()
        found[name] = [loss.detach(), *(parameter.grad.to_dense() for parameter in model.parameters())]
        model.zero_grad()
    for name, values in found.items():
        for value, expected in zip(values, found["depths"], strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-3 * float(expected.abs().max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--hidden", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--batch", type=int, default=64, help="trees in a minibatch")
    parser.add_argument("--steps", type=int, default=16, help="minibatches in a repetition")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--variants", nargs="+", default=["windrow", "depths", "levels"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(1)
    trees = Trees(options.data and options.data / "train.txt", options.batch * options.steps)
    minibatches = [trees.trees[i : i + options.batch] for i in range(0, len(trees.trees), options.batch)]
    for hidden in options.hidden:
        models: dict[str, Model] = {}
        cells = {"windrow": Windrow, "depths": Depths, "levels": Levels}
        for name in options.variants:
            models[name] = Model(cells[name](hidden), trees.words, hidden)
            torch.manual_seed(1)
            with torch.no_grad():
                for parameter in models[name].parameters():
                    parameter.uniform_(-(hidden**-0.5), hidden**-0.5)
        batches: dict[str, list[Any]] = {}
        for name, model in models.items():
            made = {"depths": DepthsBatch, "levels": LevelsBatch}.get(
                name, lambda some: WindrowBatch(some, model.cell.module.function)
            )
            batches[name] = [made(some) for some in minibatches]
        compare(models, batches)

        def steps(name: str) -> Any:
            optimiser = torch.optim.SGD(models[name].parameters(), lr=1e-4)

            def run() -> None:
                for batch in batches[name]:
                    optimiser.zero_grad()
                    models[name](batch).backward()
                    optimiser.step()

            return run

        figures = Figures({name: steps(name) for name in models}, options.repetitions)
        figures.print(f"Tree-LSTM, hidden {hidden}, batch {options.batch}", "windrow", len(minibatches))


if __name__ == "__main__":
    main()

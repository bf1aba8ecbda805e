#!/usr/bin/env python3
"""A Tree-LSTM inside a PyTorch model: windrow.torch compared with PyTorch batched by hand, on one core.

    PYTHONPATH=build/release/python taskset -c 1 perf/python/torch_tree_lstm.py [--data DIR] [--hidden 32 256]

DIR contains train.txt of the Stanford Sentiment Treebank; without it, trees are random. The cell is the binary N-ary
Tree-LSTM of Tai, Socher and Manning 2015: leaves have words, and all gates of an inner vertex depend on both children.
There is a loss at every vertex. All variants use torch's embedding, with sparse gradients, and torch's gradient
descent. A step contains the forward pass, the backward pass and the optimiser. Each variant derives its tables of the
trees (levels, rows of children) before the measurement. Losses and gradients are compared first.

  windrow  a windrow.torch.Module that pushes the loss of each vertex; an engine of one worker
  states   a windrow.torch.Module that pushes the state of each vertex; torch computes the losses from them
  depths   torch, by distance from the root: the children of a batch are exactly the batch before it, so no batch
           gathers from a tensor of all states
  levels   torch, by distance from the leaves, the usual way: children are gathered from a tensor of all states
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

import windrow
import windrow.torch

CLASSES = 5
Tree = list[tuple[int, int, list[int]]]  # label, word or -1, children; children come first, so the root is the last


# Trees


def trees_of(nested: list[Any]) -> tuple[list[Tree], int]:
    """The trees and the number of words."""
    numbers: dict[str, int] = {}

    def add(node: Any, to: Tree) -> int:
        label, *parts = node
        if isinstance(parts[0], str):
            to.append((int(label), numbers.setdefault(parts[0], len(numbers)), []))
        else:
            children = [add(part, to) for part in parts]
            to.append((int(label), -1, children))
        return len(to) - 1

    trees: list[Tree] = [[] for _ in nested]
    for tree, root in zip(trees, nested):
        add(root, tree)
    return trees, len(numbers)


def random_tree(words: int) -> Any:
    label = str(random.randrange(CLASSES))
    if words == 1:
        return (label, f"w{int(random.paretovariate(1)) % 10000}")
    left = random.randint(1, words - 1)
    return (label, random_tree(left), random_tree(words - left))


class Batch:
    """A minibatch with its vertices in some order; words are those of the leaves in this order."""

    def __init__(self, trees: list[Tree], order: list[tuple[int, int]]) -> None:
        self.labels = torch.tensor([trees[t][v][0] for t, v in order])
        self.words = torch.tensor([trees[t][v][1] for t, v in order if trees[t][v][1] >= 0])


# PyTorch


class Hand(torch.nn.Module):
    """Weights, and what all ways of batching share. Gates are i, o, u of leaves; i, o, left f, right f, u of others."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        n = self.hidden = hidden
        self.words = torch.nn.Embedding(words, n, sparse=True)
        shapes = {"leaf": (n, 3 * n), "inner": (2 * n, 5 * n), "head": (n, CLASSES)}
        for name, (rows, width) in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(rows, width)))
            self.register_parameter(name + "_bias", torch.nn.Parameter(torch.empty(1, width)))

    def forward(self, batch: Any) -> torch.Tensor:
        states = self.states(self.words(batch.words), batch)
        return F.cross_entropy(torch.addmm(self.head_bias, states, self.head), batch.labels, reduction="sum")

    def states(self, words: torch.Tensor, batch: Any) -> torch.Tensor:
        raise NotImplementedError

    def leaves(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sigmoids, u = torch.addmm(self.leaf_bias, words, self.leaf).split((2 * self.hidden, self.hidden), 1)
        i, o = sigmoids.sigmoid().chunk(2, 1)
        c = i * u.tanh()
        return o * c.tanh(), c

    def inners(self, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """h and c: (vertices, 2 hidden), both children beside each other."""
        sigmoids, u = torch.addmm(self.inner_bias, h, self.inner).split((4 * self.hidden, self.hidden), 1)
        i, o, f_left, f_right = sigmoids.sigmoid().chunk(4, 1)
        c_left, c_right = c.chunk(2, 1)
        c = torch.addcmul(torch.addcmul(i * u.tanh(), f_left, c_left), f_right, c_right)
        return o * c.tanh(), c


class LevelsBatch(Batch):
    def __init__(self, trees: list[Tree]) -> None:
        heights: list[list[int]] = []
        for tree in trees:
            heights.append([])
            for _, _, children in tree:
                heights[-1].append(1 + max((heights[-1][child] for child in children), default=-1))
        order = [(t, v) for t, tree in enumerate(trees) for v in range(len(tree))]
        order.sort(key=lambda vertex: heights[vertex[0]][vertex[1]])
        super().__init__(trees, order)
        row = {vertex: number for number, vertex in enumerate(order)}
        levels: dict[int, list[int]] = {}
        for t, v in order:
            levels.setdefault(heights[t][v], []).extend(row[t, child] for child in trees[t][v][2])
        self.children = [torch.tensor(levels[height]) for height in sorted(levels) if height > 0]


class Levels(Hand):
    Batch = LevelsBatch

    def states(self, words: torch.Tensor, batch: LevelsBatch) -> torch.Tensor:
        n = self.hidden
        all_states = words.new_empty(len(batch.labels), 2 * n)  # h and c
        end = len(words)
        all_states[:end] = torch.cat(self.leaves(words), 1)
        for children in batch.children:
            below = all_states.index_select(0, children)
            begin, end = end, end + len(children) // 2
            h, c = below[:, :n].reshape(-1, 2 * n), below[:, n:].reshape(-1, 2 * n)
            all_states[begin:end] = torch.cat(self.inners(h, c), 1)
        return all_states[:, :n]


class DepthsBatch(Batch):
    """Vertices by depth, the deepest first. A depth has its leaves first, then its inner vertices; `rows` sorts a depth
    so that siblings are neighbours, in the order of their parents."""

    def __init__(self, trees: list[Tree]) -> None:
        depths = [[(t, len(tree) - 1) for t, tree in enumerate(trees)]]  # from the roots down
        rows = []
        while True:
            depths[-1].sort(key=lambda vertex: len(trees[vertex[0]][vertex[1]][2]) > 0)
            place = {vertex: row for row, vertex in enumerate(depths[-1])}
            if len(depths) > 1:
                rows.append(torch.tensor([place[vertex] for vertex in siblings]))
            siblings = [(t, child) for t, v in depths[-1] for child in trees[t][v][2]]
            if not siblings:
                break
            depths.append(list(siblings))
        self.rows = rows[::-1]
        super().__init__(trees, [vertex for depth in depths[::-1] for vertex in depth])
        self.leaves = [sum(not trees[t][v][2] for t, v in depth) for depth in depths[::-1]]


class Depths(Hand):
    Batch = DepthsBatch

    def states(self, words: torch.Tensor, batch: DepthsBatch) -> torch.Tensor:
        n = self.hidden
        h_leaves, c_leaves = (states.split(batch.leaves) for states in self.leaves(words))
        h, c, all_h = h_leaves[0], c_leaves[0], [h_leaves[0]]
        for h_leaf, c_leaf, rows in zip(h_leaves[1:], c_leaves[1:], batch.rows):
            h, c = self.inners(h.index_select(0, rows).view(-1, 2 * n), c.index_select(0, rows).view(-1, 2 * n))
            if len(h_leaf):
                h, c = torch.cat((h_leaf, h)), torch.cat((c_leaf, c))
            all_h.append(h)
        return torch.cat(all_h)


# Windrow


def tree_lstm(n: int, pushes_loss: bool) -> windrow.torch.Module:
    """A module whose output "out" is the loss of each vertex, or its state."""
    parameters = windrow.Parameters(seed=1)
    leaf, leaf_bias = parameters.add("leaf", n, 3 * n), parameters.add("leaf_bias", 1, 3 * n)
    inner, inner_bias = parameters.add("inner", 2 * n, 5 * n), parameters.add("inner_bias", 1, 5 * n)
    if pushes_loss:
        head, head_bias = parameters.add("head", n, CLASSES), parameters.add("head_bias", 1, CLASSES)

    def finish(v: windrow.Vertex, h: windrow.State, c: windrow.State, memory: windrow.Expr, o: windrow.Expr) -> None:
        own = o * windrow.tanh(memory)
        v.scatter(c, memory)
        v.scatter(h, own)
        if pushes_loss:
            v.push("out", windrow.softmax_cross_entropy(own @ head + head_bias, v.pull_index("label")))
        else:
            v.push("out", own)

    @windrow.vertex_function(arity=0)
    def leaves(v: windrow.Vertex) -> None:
        h, c = v.state("h", n), v.state("c", n)
        gates = v.pull_row("words", n) @ leaf + leaf_bias
        sigmoids = windrow.sigmoid(gates[: 2 * n])
        finish(v, h, c, sigmoids[:n] * windrow.tanh(gates[2 * n :]), sigmoids[n:])

    @windrow.vertex_function(arity=2)
    def inners(v: windrow.Vertex) -> None:
        h, c = v.state("h", n), v.state("c", n)
        gates = windrow.concat([v.gather(0, h), v.gather(1, h)]) @ inner + inner_bias
        sigmoids = windrow.sigmoid(gates[: 4 * n])
        i, o, left, right = (sigmoids[k * n : (k + 1) * n] for k in range(4))
        finish(v, h, c, i * windrow.tanh(gates[4 * n :]) + left * v.gather(0, c) + right * v.gather(1, c), o)

    function = windrow.VertexFunction("tree_lstm", [leaves, inners])
    return windrow.torch.Module(function, parameters, "out", groups=1, op_flops=100_000_000)  # for one core


class WindrowBatch(Batch):
    def __init__(self, trees: list[Tree], function: windrow.VertexFunction) -> None:
        super().__init__(trees, [(t, v) for t, tree in enumerate(trees) for v in range(len(tree))])
        samples = []
        for tree in trees:
            sample = {"children": [children for _, _, children in tree], "kinds": [word < 0 for _, word, _ in tree]}
            samples.append(sample | ({"label": [label for label, _, _ in tree]} if "label" in function.inputs else {}))
        self.graphs = windrow.Graphs.from_lists(function, samples)
        is_leaf = torch.tensor([word >= 0 for tree in trees for _, word, _ in tree])
        self.rows = (is_leaf.cumsum(0) - 1).to(torch.int32)  # the row of `words` that a vertex pulls, if it is a leaf


class States(Hand):
    def __init__(self, words: int, hidden: int) -> None:
        super().__init__(words, hidden)
        self.trees = tree_lstm(hidden, pushes_loss=False)
        for name in ("leaf", "leaf_bias", "inner", "inner_bias"):
            delattr(self, name)

    def Batch(self, trees: list[Tree]) -> WindrowBatch:
        return WindrowBatch(trees, self.trees.function)

    def states(self, words: torch.Tensor, batch: WindrowBatch) -> torch.Tensor:
        return self.trees(batch.graphs, words=(words, batch.rows))


class Losses(torch.nn.Module):
    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(words, hidden, sparse=True)
        self.trees = tree_lstm(hidden, pushes_loss=True)

    def Batch(self, trees: list[Tree]) -> WindrowBatch:
        return WindrowBatch(trees, self.trees.function)

    def forward(self, batch: WindrowBatch) -> torch.Tensor:
        return self.trees(batch.graphs, words=(self.words(batch.words), batch.rows)).sum()


VARIANTS = {"windrow": Losses, "states": States, "depths": Depths, "levels": Levels}


def by_name(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name.replace("words.weight", "words").split(".")[-1]: value for name, value in model.named_parameters()}


def initialise(model: torch.nn.Module, bound: float) -> None:
    """Draws the same values in all variants."""
    torch.manual_seed(1)
    with torch.no_grad():
        for _, parameter in sorted(by_name(model).items()):
            parameter.uniform_(-bound, bound)


def require_equal(models: dict[str, Any], batches: dict[str, list[Any]]) -> None:
    """Raises an error unless all variants compute the same loss and gradients."""
    expected: dict[str, torch.Tensor] = {}
    for name, model in models.items():
        loss = model(batches[name][0])
        loss.backward()
        found = {"loss": loss.detach()} | {key: value.grad.to_dense() for key, value in by_name(model).items()}
        model.zero_grad()
        expected = expected or found
        assert found.keys() == expected.keys(), (found.keys(), expected.keys())
        for key, value in found.items():
            largest = float(expected[key].abs().max())
            torch.testing.assert_close(value, expected[key], rtol=1e-4, atol=1e-5 * largest, msg=f"{name}: {key}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--hidden", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--batch", type=int, default=64, help="trees in a minibatch")
    parser.add_argument("--steps", type=int, default=16, help="minibatches in a repetition")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(1)
    count = options.batch * options.steps
    if options.data:
        nested = windrow.parse_brackets((options.data / "train.txt").read_text("utf-8"))[:count]
    else:
        nested = [random_tree(max(1, int(random.gauss(19.2, 9)))) for _ in range(count)]
    trees, words = trees_of(nested)
    minibatches = [trees[i : i + options.batch] for i in range(0, len(trees), options.batch)]
    for hidden in options.hidden:
        models = {name: VARIANTS[name](words, hidden) for name in options.variants}
        for model in models.values():
            initialise(model, hidden**-0.5)
        batches = {name: [model.Batch(some) for some in minibatches] for name, model in models.items()}
        require_equal(models, batches)

        figures = Figures({name: steps(models[name], batches[name]) for name in models}, options.repetitions)
        figures.print(f"Tree-LSTM, hidden {hidden}, batch {options.batch}", options.variants[0], len(minibatches))


if __name__ == "__main__":
    main()

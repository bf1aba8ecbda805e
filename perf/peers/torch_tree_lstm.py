#!/usr/bin/env python3
"""The Tree-LSTM of `windrow-perf train --model tree-lstm` in PyTorch, batched by hand, level by level.

    perf/peers/torch_tree_lstm.py --data DIR --device cuda --hidden 256 512 --batch 1 16 64 256 1024

DIR contains train.txt, with one bracketed tree per line. The cell is that of models/include/windrow/models/tree_lstm.h,
with a loss at every vertex. Training is plain gradient descent. The levels of each minibatch and the rows of all
children are found before the measurement. Prints one JSON object per line, with the best and the median trees/s of the
passes and, on a GPU, its name.
"""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn.functional as F


def read_trees(path):
    """A tree is a list of vertices (label, word or None, children), children first."""
    trees = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            tokens = line.replace("(", " ( ").replace(")", " ) ").split()
            if not tokens:
                continue
            vertices, open_vertices = [], []
            for i, token in enumerate(tokens):
                if token == "(":
                    open_vertices.append([int(tokens[i + 1]), None, []])
                elif token == ")":
                    vertices.append(tuple(open_vertices.pop()))
                    if open_vertices:
                        open_vertices[-1][2].append(len(vertices) - 1)
                elif tokens[i - 1] != "(":
                    open_vertices[-1][1] = token
            trees.append(vertices)
    return trees


class Minibatch:
    """Rows are sorted by level; those of level 0 are the leaves."""

    def __init__(self, trees, numbers, device):
        vertices = []  # level, tree, vertex
        for t, tree in enumerate(trees):
            levels = []
            for v, (_, _, children) in enumerate(tree):
                levels.append(1 + max((levels[c] for c in children), default=-1))
                vertices.append((levels[v], t, v))
        vertices.sort()
        row = {(t, v): r for r, (_, t, v) in enumerate(vertices)}
        self.rows = len(vertices)
        self.words = torch.tensor([numbers[trees[t][v][1]] for level, t, v in vertices if level == 0], device=device)
        self.labels = torch.tensor([trees[t][v][0] for _, t, v in vertices], device=device)
        self.children = []  # of each level above the leaves: a row for each child
        by_level = {}
        for level, t, v in vertices[len(self.words):]:
            by_level.setdefault(level, []).extend(row[t, c] for c in trees[t][v][2])
        self.children = [torch.tensor(by_level[level], device=device) for level in sorted(by_level)]


class TreeLstm(torch.nn.Module):
    def __init__(self, words, embedding, hidden, classes=5):
        super().__init__()
        self.hidden = hidden
        self.words = torch.nn.Embedding(words, embedding, sparse=True)
        self.leaf = torch.nn.Linear(embedding, 3 * hidden)
        self.inner = torch.nn.Linear(2 * hidden, 3 * hidden)
        self.forget = torch.nn.Linear(hidden, hidden)
        self.head = torch.nn.Linear(hidden, classes)

    def states(self, gates, kept=0):
        i, o, u = gates.chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.cat((torch.sigmoid(o) * torch.tanh(c), c), 1)

    def forward(self, minibatch):
        h = self.hidden
        leaves = len(minibatch.words)
        # States of all rows, [h, c]; what is written in place was not read before.
        all_states = self.inner.weight.new_zeros(minibatch.rows, 2 * h)
        all_states[:leaves] = self.states(self.leaf(self.words(minibatch.words)))
        begin = leaves
        for children in minibatch.children:
            n = len(children) // 2
            below = all_states[children]
            h_below, c_below = below[:, :h], below[:, h:]
            kept = (torch.sigmoid(self.forget(h_below)) * c_below).view(n, 2, h).sum(1)
            all_states[begin:begin + n] = self.states(self.inner(h_below.reshape(n, 2 * h)), kept)
            begin += n
        return F.cross_entropy(self.head(all_states[:, :h]), minibatch.labels, reduction="sum")


def measure(model, minibatches, trees, training, passes, device):
    """Trees a second of each pass."""
    step = torch.optim.SGD(model.parameters(), lr=1e-4)
    rates = []
    for number in range(passes + 1):  # the first warms up
        began = time.perf_counter()
        for minibatch in minibatches:
            if training:
                step.zero_grad(set_to_none=True)
                model(minibatch).backward()
                step.step()
            else:
                with torch.no_grad():
                    model(minibatch)
        if device == "cuda":
            torch.cuda.synchronize()
        if number > 0:
            rates.append(trees / (time.perf_counter() - began))
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256])
    parser.add_argument("--batch", type=int, nargs="+", default=[64])
    parser.add_argument("--trees", type=int, default=2048, help="trees per pass")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads on the CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    trees = read_trees(arguments.data + "/train.txt")
    numbers = {word: i for i, word in enumerate(sorted({word for tree in trees for _, word, _ in tree if word}))}
    random.Random(1).shuffle(trees)
    for hidden in arguments.hidden:
        model = TreeLstm(len(numbers), hidden, hidden).to(arguments.device)
        for batch in arguments.batch:
            # Small batches take long: fewer trees of the same order.
            some = trees[:max(min(arguments.trees, 64 * batch), batch)]
            minibatches = [Minibatch(some[i:i + batch], numbers, arguments.device) for i in range(0, len(some), batch)]
            for training in (True, False):
                rates = measure(model, minibatches, len(some), training, arguments.passes, arguments.device)
                print(json.dumps({
                    "system": "torch " + torch.__version__, "model": "tree-lstm",
                    "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
                    "workers": arguments.threads, "hidden": hidden, "batch": batch,
                    "mode": "training" if training else "inference", "unit": "trees",
                    "units_per_s": max(rates), "units_per_s_median": statistics.median(rates)}), flush=True)


if __name__ == "__main__":
    main()

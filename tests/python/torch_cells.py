"""A windrow.torch.Module for tests, and the same in torch alone. Needs torch."""

import torch

import windrow
import windrow.torch

H, D = 6, 4


def make(seed=1):
    """A module that combines two children and a word, and the same as a function of torch for one graph."""
    parameters = windrow.Parameters(seed=seed)
    win, left, right = (parameters.add(name, rows, H) for name, rows in (("win", D), ("left", H), ("right", H)))
    bias = parameters.add("bias", 1, H, "zeros")

    @windrow.vertex_function(arity=2)
    def cell(v):
        state = v.state("state", H)
        word = v.pull_row("words", D)
        h = windrow.tanh(word @ win + v.gather(0, state) @ left + v.gather(1, state) @ right + bias)
        v.scatter(state, h)
        v.push("h", h)

    return windrow.torch.Module(cell, parameters, "h"), cell


TREES = [[[], [], [0, 1]], [[]], [[], [], [0, 1], [], [2, 3]]]


def graphs_of(cell):
    return windrow.Graphs.from_lists(cell, [{"children": tree} for tree in TREES])


def plain(module, words):
    """What the module computes, by torch alone."""
    rows, first = [], 0
    for tree in TREES:
        states = []
        for v, children in enumerate(tree):
            h = words[first + v] @ module.win + module.bias[0]
            for child, weight in zip(children, (module.left, module.right)):
                h = h + states[child] @ weight
            states.append(torch.tanh(h))
        rows += states
        first += len(tree)
    return torch.stack(rows)


def random_words(requires_grad=True):
    torch.manual_seed(3)
    return torch.randn(sum(len(tree) for tree in TREES), D, requires_grad=requires_grad)

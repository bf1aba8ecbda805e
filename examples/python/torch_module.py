"""A vertex function between two layers of PyTorch: embeddings of torch, a tree of windrow, a loss of torch."""

from __future__ import annotations

import sys

import windrow

try:
    import torch

    import windrow.torch
except ImportError:
    print("torch is not installed, so this example does nothing")
    sys.exit(5)

H = 16
parameters = windrow.Parameters(seed=1)
win = parameters.add("win", H, H)
left, right = parameters.add("left", H, H), parameters.add("right", H, H)


@windrow.vertex_function(arity=2)
def cell(v: windrow.Vertex) -> None:
    state = v.state("state", H)
    h = windrow.tanh(v.pull_row("words", H) @ win + v.gather(0, state) @ left + v.gather(1, state) @ right)
    v.scatter(state, h)
    v.push("h", h)


# (It works) and (Fine): the root is the last vertex. The label tells whether a vertex has children.
graphs = windrow.Graphs.from_lists(cell, [{"children": [[], [], [0, 1]]}, {"children": [[]]}])
tokens, labels = torch.tensor([0, 1, 3, 2]), torch.tensor([0, 0, 1, 0])

torch.manual_seed(1)
embedding, classifier = torch.nn.Embedding(4, H), torch.nn.Linear(H, 2)
trees = windrow.torch.Module(cell, parameters, "h")  # the output that v.push("h", ...) names
model = torch.nn.ModuleList([embedding, trees, classifier])
optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(21):
    optimiser.zero_grad()
    h = trees(graphs, words=embedding(tokens))  # rows for v.pull_row("words", width)
    loss = torch.nn.functional.cross_entropy(classifier(h), labels)
    loss.backward()
    optimiser.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")

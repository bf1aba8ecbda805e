"""A torch encoder below a windrow tree network: the leaves pull the states of a bidirectional LSTM."""

from typing import Any

import torch

import windrow
import windrow.torch


H, WORDS = 16, ["not", "very", "good", "bad", "at", "all", "new"]
TREES: list[Any] = [("not", ("very", "good")), (("not", "bad"), ("at", "all")), ("very", "bad"), ("good", "new")]
LABELS = torch.tensor([0, 1, 0, 1])  # of the sentences

parameters = windrow.Parameters(seed=1)
leaf, left, right = (parameters.add(name, H, H) for name in ("leaf", "left", "right"))


@windrow.vertex_function(arity=0)
def word(v: windrow.Vertex) -> None:
    v.scatter(v.state("h", H), windrow.tanh(v.pull_row("tokens", H) @ leaf))


@windrow.vertex_function(arity=2)
def phrase(v: windrow.Vertex) -> None:
    h = v.state("h", H)
    own = windrow.tanh(v.gather(0, h) @ left + v.gather(1, h) @ right)
    v.scatter(h, own)
    v.push("phrase", own)


cell = windrow.VertexFunction("tree", [word, phrase])
samples: list[dict[str, list[Any]]] = [{"children": [], "kinds": []} for _ in TREES]
sentences: list[list[int]] = [[] for _ in TREES]
row_of: list[int] = []  # for each vertex, the row of `tokens` that it pulls: sentence * longest + place
longest = 4


def add(node: Any, t: int) -> int:
    children = [] if isinstance(node, str) else [add(child, t) for child in node]
    row_of.append(longest * t + len(sentences[t]) if isinstance(node, str) else -1)
    if isinstance(node, str):
        sentences[t].append(WORDS.index(node))
    samples[t]["children"].append(children)
    samples[t]["kinds"].append(int(bool(children)))
    return len(samples[t]["children"]) - 1


for t, tree in enumerate(TREES):
    add(tree, t)
graphs = windrow.Graphs.from_lists(cell, samples)
roots = torch.tensor([len(sample["children"]) for sample in samples]).cumsum(0) - 1  # children come first
padded = torch.tensor([sentence + [0] * (longest - len(sentence)) for sentence in sentences])

torch.manual_seed(1)
embedding = torch.nn.Embedding(len(WORDS), H)
encoder = torch.nn.LSTM(H, H // 2, batch_first=True, bidirectional=True)
trees, classifier = windrow.torch.Module(cell, parameters, "phrase"), torch.nn.Linear(H, 2)
model = torch.nn.ModuleList([embedding, encoder, trees, classifier])
optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(31):
    optimiser.zero_grad()
    tokens, _ = encoder(embedding(padded))
    phrases = trees(graphs, tokens=(tokens.reshape(-1, H), row_of))  # a row for each vertex
    loss = torch.nn.functional.cross_entropy(classifier(phrases[roots]), LABELS)
    loss.backward()
    optimiser.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")

"""A windrow Tree-LSTM between two PyTorch layers, in a PyTorch training loop."""

import torch

import windrow
import windrow.torch
from windrow import concat, sigmoid, tanh

H = 16
parameters = windrow.Parameters(seed=1)
win, children = parameters.add("win", H, 5 * H), parameters.add("children", 2 * H, 5 * H)
bias = parameters.add("bias", 1, 5 * H, "zeros")


@windrow.vertex_function(arity=2)
def tree_lstm(v: windrow.Vertex) -> None:
    h, c = v.state("h", H), v.state("c", H)
    # gather() gives zeros where a vertex has no child.
    gates = v.pull_row("words", H) @ win + concat([v.gather(0, h), v.gather(1, h)]) @ children + bias
    i, o, left, right = (sigmoid(gates[k * H : (k + 1) * H]) for k in range(4))
    memory = i * tanh(gates[4 * H :]) + left * v.gather(0, c) + right * v.gather(1, c)
    own = o * tanh(memory)
    v.scatter(h, own)
    v.scatter(c, memory)
    v.push("h", own)


# (It works) and (Fine): the root is the last vertex. The label tells whether a vertex has children.
graphs = windrow.Graphs.from_lists(tree_lstm, [{"children": [[], [], [0, 1]]}, {"children": [[]]}])
tokens, labels = torch.tensor([0, 1, 3, 2]), torch.tensor([0, 0, 1, 0])

torch.manual_seed(1)
embedding, classifier = torch.nn.Embedding(4, H), torch.nn.Linear(H, 2)
trees = windrow.torch.Module(tree_lstm, parameters, "h")  # the output that v.push("h", ...) names
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

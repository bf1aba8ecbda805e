"""Graphs of your own data: syntax trees of Python, as objects and as arrays. Graphs.from_nested() and others serve
common forms."""

import ast

import numpy as np

import windrow
from windrow import embedding, softmax_cross_entropy, sum_children, tanh

SOURCES = ["x + 1", "f(x) + f(y)", "a * (b + 3)", "[i for i in x]", "f(g(h(1)))", "not x", "x < y < z", "-f(x, y, z)"]
expressions = [ast.parse(source, mode="eval").body for source in SOURCES]
types = windrow.Vocabulary(type(node).__name__ for tree in expressions for node in ast.walk(tree))
H = 16

parameters = windrow.Parameters(seed=1)
table = parameters.add("types", len(types), H)
w = parameters.add("w", H, H)
head = parameters.add("head", H, 2)


@windrow.vertex_function(arity="any")
def cell(v: windrow.Vertex) -> None:
    state = v.state("h", H)
    own = tanh(embedding(table, v.pull_index("type")) + sum_children(v.each(state)) @ w)
    v.scatter(state, own)
    v.push("logits", own @ head)
    v.loss(softmax_cross_entropy(own @ head, v.pull_index("calls")))  # a vertex with label -1 has no loss


def type_of(node: ast.AST) -> int:
    return types[type(node).__name__]


# 1. Objects: a function returns the children of one, another its inputs. Here the root is asked if it contains a call.
roots = {id(tree): int(any(isinstance(node, ast.Call) for node in ast.walk(tree))) for tree in expressions}
of_objects = windrow.Graphs.from_objects(
    cell,
    expressions,
    children=ast.iter_child_nodes,
    inputs=lambda node: {"type": type_of(node), "calls": roots.get(id(node), -1)},
)


# 2. Arrays: all samples in one call, without a loop of Python. Here they come from the graphs that we have.
types_of_vertices = np.concatenate([graph.index("type") for graph in of_objects])
calls = np.concatenate([graph.index("calls") for graph in of_objects])
structures = [graph.structure() for graph in of_objects]
offsets = np.cumsum([0] + [graph.vertices for graph in of_objects])
counts = np.concatenate([np.diff(child_offsets) for child_offsets, _, _ in structures])
of_arrays = windrow.Graphs.from_arrays(
    cell,
    offsets,
    child_offsets=np.concatenate([[0], np.cumsum(counts)]),
    children=np.concatenate([children for _, children, _ in structures]),  # numbered within each sample
    type=types_of_vertices,
    calls=calls,
)

runner = windrow.Runner(cell, parameters)
print(f"loss of objects {runner.run(of_objects).loss():.4f}, of arrays {runner.run(of_arrays).loss():.4f}")

try:  # errors name the sample and the vertex
    windrow.Graphs.from_arrays(cell, [0, 2], [0, 0, 1], [5], type=[1, 1], calls=[-1, 0])
except windrow.MisuseError as error:
    print("error:", error)

optimiser = windrow.Adam(parameters, 0.02)
for step in range(60):
    minibatch = runner.differentiate(of_objects)
    optimiser.step(len(of_objects))
    if step % 20 == 19:
        print(f"step {step + 1}: loss {minibatch.loss():.4f}")

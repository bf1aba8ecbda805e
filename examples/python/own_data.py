"""Graphs of your own data: syntax trees of Python, as objects and as arrays. The network finds calls in expressions."""

import ast

import windrow
from windrow import embedding, softmax_cross_entropy, sum_children, tanh

SOURCES = ["x + 1", "f(x) + f(y)", "a * (b + 3)", "[i for i in x]", "f(g(h(1)))", "not x", "x < y < z", "-f(x, y, z)"]
expressions = [ast.parse(source, mode="eval").body for source in SOURCES]
types = windrow.Vocabulary(type(node).__name__ for tree in expressions for node in ast.walk(tree))

H = 16
parameters = windrow.Parameters(seed=1)
table, w = parameters.add("types", len(types), H), parameters.add("w", H, H)
head = parameters.add("head", H, 2)


@windrow.vertex_function(arity="any")
def syntax(v: windrow.Vertex) -> None:
    state = v.state("h", H)
    own = tanh(embedding(table, v.pull_index("type")) + sum_children(v.each(state)) @ w)
    v.scatter(state, own)
    v.push("logits", own @ head)
    v.loss(softmax_cross_entropy(own @ head, v.pull_index("calls")))  # no loss where the label is -1


def inputs(node: ast.AST) -> dict[str, int]:
    calls = any(isinstance(below, ast.Call) for below in ast.walk(node))
    return {"type": types[type(node).__name__], "calls": int(calls) if isinstance(node, ast.expr) else -1}


graphs = windrow.Graphs.from_objects(syntax, expressions, children=ast.iter_child_nodes, inputs=inputs)

arrays = windrow.Graphs.from_arrays(  # f(x), and 7
    syntax,
    offsets=[0, 3, 4],  # the first sample has the vertices 0 to 2, the second one vertex 3
    child_offsets=[0, 0, 0, 2, 2],  # vertex 2 has two children, the others have none
    children=[0, 1],  # numbered from 0 in each sample
    type=types.numbers(["Name", "Name", "Call", "Constant"]),
    calls=[-1, -1, -1, -1],  # unknown
)

runner, optimiser = windrow.Runner(syntax, parameters), windrow.Adam(parameters, 0.02)
for step in range(60):
    minibatch = runner.differentiate(graphs)
    optimiser.step(len(graphs))
answers = runner.run(arrays).at_roots("logits").numpy().argmax(axis=1)
print(f"loss {minibatch.loss():.3f}; calls in f(x) and 7: {answers}")

"""A recursive network over trees in one screen: vertex function, graphs, training and prediction."""

import windrow
from windrow import embedding, softmax_cross_entropy, tanh

H, LABELS = 32, ["bad", "good"]
TREES = [("good", ("good", "not"), ("good", "bad")), ("bad", ("good", "not"), ("good", "fun")), ("good", "fun")]
vocabulary = windrow.Vocabulary(["not", "bad", "fun"])
parameters = windrow.Parameters(seed=1)
words = parameters.add("words", len(vocabulary), H, windrow.init.normal(0, 0.1))
left, right, head = (parameters.add(name, H, width) for name, width in (("left", H), ("right", H), ("head", 2)))


@windrow.vertex_function(arity=2)
def tree(v: windrow.Vertex) -> None:  # describes one vertex of any tree; windrow computes all trees in batches
    h = v.state("h", H)
    word = embedding(words, v.pull_index("word", optional=True))
    own = tanh(word + v.gather(0, h) @ left + v.gather(1, h) @ right)
    v.scatter(h, own)
    v.push("logits", own @ head)
    v.loss(softmax_cross_entropy(own @ head, v.pull_index("label")))


graphs = windrow.Graphs.from_nested(tree, TREES, words=vocabulary, labels=LABELS.index)
runner, optimiser = windrow.Runner(tree, parameters), windrow.Adam(parameters, 0.01)
for epoch in range(40):
    for minibatch in graphs.minibatches(64, shuffle=epoch):
        runner.differentiate(minibatch)
        optimiser.step(len(minibatch))
print([LABELS[k] for k in runner.run(graphs).at_roots("logits").numpy().argmax(axis=1)])

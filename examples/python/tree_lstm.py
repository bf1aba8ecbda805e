"""Trains a Tree-LSTM on the sentiment of sentences, predicts, saves and loads it. docs/python.md explains it."""

import windrow
from windrow import concat, embedding, sigmoid, softmax_cross_entropy, tanh

TREES = [  # each phrase has a label from 0 (very bad) to 4 (very good), and a word or two phrases
    (4, (2, "it"), (4, (3, "works"), (3, "well"))),
    (1, (2, "it"), (1, (1, "fails"), (2, "often"))),
    (0, (1, (1, "not"), (3, "good")), (2, (2, "at"), (2, "all"))),
    (3, (2, (2, "new"), (2, "and")), (3, (3, "good"), (2, "fun"))),
]
vocabulary = windrow.Vocabulary("it works well fails often not good at all new and fun".split())

H = 32
parameters = windrow.Parameters(seed=1)
words = parameters.add("words", len(vocabulary), H, windrow.init.uniform(-0.1, 0.1))  # rows, width, initial values
w = parameters.add("w", 3 * H, 5 * H)  # Glorot's initial values
bias = parameters.add("bias", 1, 5 * H, "zeros")
head = parameters.add("head", H, 5)


@windrow.vertex_function(arity=2)
def tree_lstm(v: windrow.Vertex) -> None:
    h, c = v.state("h", H), v.state("c", H)
    word = embedding(words, v.pull_index("word", optional=True))  # zeros where the vertex has no word
    gates = concat([word, v.gather(0, h), v.gather(1, h)]) @ w + bias  # zeros where it has no child
    i, o, left, right = (sigmoid(gates[k * H : (k + 1) * H]) for k in range(4))
    memory = i * tanh(gates[4 * H :]) + left * v.gather(0, c) + right * v.gather(1, c)
    own = o * tanh(memory)
    v.scatter(h, own)
    v.scatter(c, memory)
    logits = own @ head
    v.push("logits", logits)
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")))


graphs = windrow.Graphs.from_nested(tree_lstm, TREES, words=vocabulary, labels=int)
runner = windrow.Runner(tree_lstm, parameters)
print(runner.batches(graphs))

optimiser = windrow.Adam(parameters, 0.02)
for epoch in range(30):
    losses = []
    for minibatch in graphs.minibatches(2, shuffle=epoch):
        losses.append(runner.differentiate(minibatch))  # pushes the forward and the backward pass, and returns
        optimiser.step(len(minibatch))  # divides the gradient by the number of graphs
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}: loss {sum(one.loss() for one in losses) / graphs.vertices:.4f} per phrase")

predicted = runner.run(graphs).at_roots("logits").numpy().argmax(axis=1)
print("predicted:", predicted.tolist(), "labels:", [tree[0] for tree in TREES])

writer = windrow.CheckpointWriter("tree_lstm_run", keep=1, resume=True)
writer.write(optimiser.steps, windrow.Snapshot(parameters, optimiser), {"words": vocabulary.words})

checkpoint, _ = windrow.CheckpointFolder("tree_lstm_run").newest()
assert checkpoint is not None
checkpoint.restore_for_use(parameters)
vocabulary = windrow.Vocabulary(checkpoint.record["words"])
new = windrow.Graphs.from_nested(tree_lstm, [("it", ("works", "often"))], words=vocabulary)
print("a new sentence:", windrow.softmax(runner.run(new).at_roots("logits")).numpy().round(2))

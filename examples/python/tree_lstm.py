"""A Tree-LSTM that learns the sentiment of sentences: the body below is traced once, and nothing of Python runs per word.

python tree_lstm.py [sst/train.txt]    the Stanford Sentiment Treebank, or another file of such trees
"""

import sys

import windrow
from windrow import concat, embedding, sigmoid, softmax_cross_entropy, tanh

# Labels from 0 (very negative) to 4 (very positive), at every phrase.
SENTENCES = """
(4 (2 It) (4 (3 works) (3 well)))
(1 (2 It) (1 (1 fails) (2 often)))
(3 (2 (2 A) (2 film)) (3 (2 that) (3 works)))
(1 (2 (2 A) (2 film)) (1 (2 that) (1 fails)))
(0 (1 (1 Not) (3 good)) (2 (2 at) (2 all)))
(4 (3 (3 Good) (2 and)) (3 (3 well) (2 made)))
(1 (1 (1 Not) (3 good)) (2 (2 or) (2 new)))
(3 (2 (2 New) (2 and)) (3 (3 good) (2 fun)))
"""

trees = windrow.Treebank(sys.argv[1]) if len(sys.argv) > 1 else windrow.Treebank(text=SENTENCES)
vocabulary = trees.vocabulary()
H, CLASSES = 32, 5

parameters = windrow.Parameters(seed=1)
words = parameters.add("words", len(vocabulary), H, windrow.init.uniform(-0.1, 0.1))
leaf = parameters.add("leaf", H, 3 * H)
inner = parameters.add("inner", 2 * H, 3 * H)
bias = parameters.add("bias", 1, 3 * H, "zeros")
forget = parameters.add("forget", H, H)
forget_bias = parameters.add("forget_bias", 1, H, 1.0)
head = parameters.add("head", H, CLASSES)


@windrow.vertex_function(arity=2)
def tree_lstm(v: windrow.Vertex) -> None:
    h, c = v.state("h", H), v.state("c", H)
    left, right = v.gather(0, h), v.gather(1, h)  # zeros where a vertex has no child
    word = embedding(words, v.pull_index("word", optional=True))  # zeros where it has no word
    gates = word @ leaf + concat([left, right]) @ inner + bias
    keep_left, keep_right = (sigmoid(state @ forget + forget_bias) for state in (left, right))
    memory = sigmoid(gates[:H]) * tanh(gates[2 * H :]) + keep_left * v.gather(0, c) + keep_right * v.gather(1, c)
    own = sigmoid(gates[H : 2 * H]) * tanh(memory)
    v.scatter(h, own)
    v.scatter(c, memory)
    logits = own @ head
    v.push("logits", logits)
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")))


graphs = trees.graphs(tree_lstm, vocabulary)
runner = windrow.Runner(tree_lstm, parameters)
optimiser = windrow.Adam(parameters, 0.01)
print(f"{len(graphs):,} trees, {graphs.vertices:,} vertices; the first minibatch: {runner.batches(graphs[:64])}")

for epoch in range(10):
    minibatches = []
    for minibatch in graphs.minibatches(64, shuffle=epoch):
        minibatches.append(runner.differentiate(minibatch))
        optimiser.step(len(minibatch))
    loss = sum(minibatch.loss() for minibatch in minibatches) / graphs.vertices
    print(f"epoch {epoch}: loss {loss:.4f} per phrase")

predicted = windrow.argmax(runner.run(graphs[:4]).at_roots("logits")).tolist()
print("labels of the first sentences:", [int(label) for (label,) in predicted])

"""A network whose length is known only at run time: it learns to spell, and writes letters until it chooses to stop."""

import windrow

H, MARK, WORDS = 32, 0, ["eins", "zwei", "drei", "vier", "acht"]  # MARK is before and after a word; letters are 1 to 26
parameters = windrow.Parameters(seed=1)
letters = parameters.add("letters", 27, H, windrow.init.normal(0, 1))
w, out = parameters.add("w", 2 * H, H), parameters.add("out", H, 27)


@windrow.cell
def step(cell: windrow.CellBody) -> None:  # (state, letter) -> (next state, scores of the next letter)
    state = windrow.tanh(windrow.concat([cell.operand(H), windrow.embedding(letters, cell.index())]) @ w)
    cell.result(state)
    cell.result(state @ out)


graph = windrow.LazyGraph(parameters)
optimiser = windrow.Adam(parameters, 0.01)
for _ in range(60):
    losses = []
    for word in WORDS:
        state, read = None, MARK  # None is a state of zeros
        for letter in [ord(character) - 96 for character in word] + [MARK]:
            state, scores = step(state, graph.index(read))
            losses.append(windrow.softmax_cross_entropy(scores, graph.index(letter)))
            read = letter
    graph.backward(losses)  # computes what was recorded, in batches across the words
    optimiser.step(len(WORDS))
    graph.clear()

writing = windrow.LazyGraph(parameters, training=False)


async def write(first: str) -> str:
    state, _ = step(None, writing.index(MARK))
    word, letter = first, ord(first) - 96
    while letter != MARK and len(word) < 9:
        state, scores = step(state, writing.index(letter))
        values = await windrow.value(scores)  # all words that wait are computed together
        letter = max(range(27), key=values.__getitem__)
        word += chr(96 + letter) if letter != MARK else ""
    return word


print(writing.run(write(first) for first in "ezdva"), writing.stats().flushes, "flushes")

"""A network learns how often words occur, letter by letter. Beam search then completes words, many at a time."""

from __future__ import annotations

import math

import windrow

H, MARK = 32, 0  # the mark before and after a word; letters count from 1
WORDS = ["eins", "eins", "eins", "eins", "elf", "elf", "zwei", "zehn"]
parameters = windrow.Parameters(seed=1)
letters = parameters.add("letters", 27, H, windrow.init.normal(0, 1))
w, out = parameters.add("w", 2 * H, H), parameters.add("out", H, 27)


@windrow.cell
def step(cell: windrow.CellBody) -> None:  # (state, letter) -> (next state, log-probabilities of letters)
    state = windrow.tanh(windrow.concat([cell.operand(H), windrow.embedding(letters, cell.index())]) @ w)
    cell.result(state)
    cell.result(windrow.log_softmax(state @ out))


def read(graph: windrow.LazyGraph, word: str) -> list[tuple[windrow.LazyExpr, windrow.LazyExpr]]:
    """The results of step() for the mark and then for each letter of the word."""
    steps = [step(None, graph.index(MARK))]
    for letter in word:
        steps.append(step(steps[-1][0], graph.index(ord(letter) - 96)))
    return steps


training = windrow.LazyGraph(parameters)
optimiser = windrow.Adam(parameters, 0.01)
for _ in range(150):
    losses = []
    for word in WORDS:
        following = [ord(letter) - 96 for letter in word] + [MARK]
        losses += [-windrow.pick(row, training.index(i)) for (_, row), i in zip(read(training, word), following)]
    training.backward(losses)
    optimiser.step(len(WORDS))
    training.clear()


async def complete(graph: windrow.LazyGraph, prefix: str, width: int) -> list[tuple[float, str]]:
    """The most probable words that begin with `prefix`, with the logarithms of their probabilities."""
    beam, ended = [(0.0, prefix, read(graph, prefix)[-1])], list[tuple[float, str]]()
    while beam:
        candidates = []
        for total, word, (state, row) in beam:
            of_letters = await windrow.value(row)  # computes the steps of all beams of all samples
            candidates += [(total + of_letters[letter], word, letter, state) for letter in range(27)]
        best = sorted(candidates, key=lambda one: -one[0])[: width - len(ended)]
        ended += [(total, word) for total, word, letter, _ in best if letter == MARK]
        going_on = [one for one in best if one[2] != MARK]
        beam = [(total, word + chr(96 + i), step(state, graph.index(i))) for total, word, i, state in going_on]
    return sorted(ended, reverse=True)


graph = windrow.LazyGraph(parameters, training=False)
for words in graph.run(complete(graph, prefix, width=2) for prefix in ("", "e", "z")):
    print(", ".join(f"{word} {math.exp(total):.2f}" for total, word in words))

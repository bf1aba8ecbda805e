"""A network learns how often words occur, letter by letter. Beam search then completes words, many at a time."""

from __future__ import annotations

import math
from typing import Optional

import windrow

H, END = 32, 0  # the mark before and after each word; letters count from 1
WORDS = ["eins", "eins", "eins", "eins", "elf", "elf", "zwei", "zehn"]

parameters = windrow.Parameters(seed=1)
letters = parameters.add("letters", 27, H, windrow.init.normal(0, 1))
w, out = parameters.add("w", 2 * H, H), parameters.add("out", H, 27)
State = Optional[windrow.LazyExpr]  # None counts as zero


@windrow.cell
def step(cell: windrow.CellBody) -> None:
    state = windrow.tanh(windrow.concat([cell.operand(H), windrow.embedding(letters, cell.index())]) @ w)
    cell.result(state)
    cell.result(windrow.log_softmax(state @ out))  # of the next letter


def numbers(word: str) -> list[int]:
    return [END, *(ord(letter) - 96 for letter in word)]


training = windrow.LazyGraph(parameters)
optimiser = windrow.Adam(parameters, 0.01)
for _ in range(150):
    losses = []
    for word in WORDS:
        state: State = None
        for letter, following in zip(numbers(word), [*numbers(word)[1:], END]):
            state, scores = step(state, training.index(letter))
            losses.append(-windrow.pick(scores, training.index(following)))
    training.backward(losses)
    optimiser.step(len(WORDS))
    training.clear()

graph = windrow.LazyGraph(parameters, training=False)


async def complete(prefix: str, width: int) -> list[tuple[float, str]]:
    """The most probable words that begin so, and the logarithms of their probabilities."""
    state: State = None
    for letter in numbers(prefix)[:-1]:
        state, _ = step(state, graph.index(letter))
    beam, ended = [(0.0, prefix, state)], []
    while beam and len(ended) < width:
        steps = [step(state, graph.index(numbers(word)[-1])) for _, word, state in beam]
        rows = [await windrow.value(scores) for _, scores in steps]  # computes those of all samples that wait
        continued = [
            (total + row[letter], word + chr(96 + letter) if letter else word, letter, state)
            for (total, word, _), (state, _), row in zip(beam, steps, rows)
            for letter in range(27)
        ]
        best = sorted(continued, key=lambda one: -one[0])[: width - len(ended)]
        ended += [(total, word) for total, word, letter, _ in best if letter == END]
        beam = [(total, word, state) for total, word, letter, state in best if letter != END]
    return sorted(ended, reverse=True)


for found in graph.run(complete(prefix, width=2) for prefix in ("e", "z", "el")):
    print(", ".join(f"{word} {math.exp(total):.2f}" for total, word in found))
print(f"{graph.stats().flushes} flushes")

"""Samples that choose their next step by what they have computed: lazy expressions, a cell, and coroutines."""

from __future__ import annotations

import windrow

parameters = windrow.Parameters(seed=1)
table = parameters.add("table", 10, 8)
win, recurrent = parameters.add("win", 8, 32), parameters.add("recurrent", 32, 32)
out = parameters.add("out", 32, 10)

graph = windrow.LazyGraph(parameters, training=False)


@graph.cell
def step(cell: windrow.CellBody) -> None:
    x, state = cell.operand(8), cell.operand(32)
    cell.result(windrow.tanh(x @ win + state @ recurrent))


async def sample(word: int, length: int) -> list[int]:
    """Continues a sentence, each time by the word of the highest score."""
    sentence, state = [word], None  # which counts as zero
    while len(sentence) < length:
        state = step(windrow.embedding(table, graph.index(sentence[-1])), state)
        scores = await windrow.value(state @ out)  # all samples that wait are computed together
        sentence.append(scores.index(max(scores)))
    return sentence


for sentence in graph.run(sample(word, 3 + word) for word in range(4)):
    print(sentence)
stats = graph.stats()
print(f"{stats.vertices} vertices in {stats.batches} batches")

"""A parser whose next step depends on its own scores: each sentence is a coroutine, and all of them share batches.
"Shift" moves the next word to a stack; "left" and "right" make one of its last two words the head of the other."""

from __future__ import annotations

import windrow
from windrow import CellBody, DependencySentence, LazyExpr, LazyGraph, concat, embedding, softmax_cross_entropy, tanh

H, SHIFT, LEFT, RIGHT = 32, 0, 1, 2
treebank = windrow.DependencyTreebank.generate(150, seed=1)
sentences, tags = [treebank[i] for i in range(150)], treebank.vocabulary("tags")  # parts of speech
parameters = windrow.Parameters(seed=1)
table = parameters.add("table", len(tags), H, windrow.init.normal(0, 0.5))
of_head, of_child, side = (parameters.add(name, H, H) for name in ("head", "child", "side"))
hidden, out = parameters.add("hidden", 3 * H, H), parameters.add("out", H, 3)


@windrow.cell
def attach(cell: CellBody) -> None:  # a head and its new dependent become one phrase
    cell.result(tanh(cell.operand(H) @ of_head + cell.operand(H) @ of_child + embedding(side, cell.index())))


@windrow.cell
def score(cell: CellBody) -> None:  # scores of the actions, from the last two phrases of the stack and the next word
    cell.result(tanh(concat([cell.operand(H), cell.operand(H), cell.operand(H)]) @ hidden) @ out)


async def parse(graph: LazyGraph, sentence: DependencySentence, losses: list[LazyExpr] | None = None) -> float:
    """The share of words that get the right head. With `losses`, takes the right actions and appends their losses."""
    phrases = {i: embedding(table, graph.index(tags[tag])) for i, tag in enumerate(sentence.tags, 1)}
    right, stack, queue, gold = 0, [-1, -1], list(phrases), dict(enumerate(sentence.heads, 1))
    while queue or len(stack) > 3:
        below, top = stack[-2:]
        scores = score(phrases.get(below), phrases.get(top), phrases[queue[0]] if queue else None)  # None is zero
        if losses is None:
            values = await windrow.value(scores)  # all sentences that wait are computed together
            action = max([SHIFT] * bool(queue) + [LEFT, RIGHT] * (below > 0), key=values.__getitem__)
        else:
            attached = gold.get(top) == below and all(gold[word] != top for word in queue)
            action = LEFT if gold.get(below) == top else RIGHT if attached else SHIFT
            losses.append(softmax_cross_entropy(scores, graph.index(action)))
        if action == SHIFT:
            stack.append(queue.pop(0))
        else:
            head, child = (top, below) if action == LEFT else (below, top)
            phrases[head] = attach(phrases[head], phrases[child], graph.index(action))
            right, stack[-2:] = right + (gold[child] == head), [head]
    return (right + (gold[stack[-1]] == 0)) / len(gold)


training, parsing = LazyGraph(parameters), LazyGraph(parameters, training=False)
optimiser = windrow.Adam(parameters, 0.01)
for step in range(60):
    losses: list[LazyExpr] = []
    training.run(parse(training, sentence, losses) for sentence in sentences[:120][step % 6 :: 6])
    training.backward(losses)
    optimiser.step(20)
    training.clear()
shares = parsing.run(parse(parsing, sentence) for sentence in sentences[120:])
print(f"{sum(shares) / len(shares):.0%} of the words have the right head; {parsing.stats().flushes} flushes")

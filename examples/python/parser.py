"""A parser whose next step depends on its own scores: samples as coroutines, whose cells are computed in batches.

"Shift" moves the next word to a stack. "Left" and "right" make one of the stack's last two words the head of the other.
The word that remains is the root. (Arc-standard parsing.)
"""

from __future__ import annotations

import windrow
from windrow import concat, embedding, softmax_cross_entropy, tanh

H, SHIFT, LEFT, RIGHT = 32, 0, 1, 2
sentences = list(windrow.DependencyTreebank.generate(150, seed=1))
words = windrow.Vocabulary(form for sentence in sentences[:120] for form in sentence.forms)

parameters = windrow.Parameters(seed=1)
table = parameters.add("table", len(words), H, windrow.init.normal(0, 1))
of_head, of_child, of_side = (parameters.add(name, H, H) for name in ("head", "child", "side"))
hidden, out = parameters.add("hidden", 3 * H, H), parameters.add("out", H, 3)


@windrow.cell
def attach(cell: windrow.CellBody) -> None:  # a head and its new dependent become one phrase
    head, child = cell.operand(H), cell.operand(H)
    cell.result(tanh(head @ of_head + child @ of_child + embedding(of_side, cell.index())))


@windrow.cell
def score(cell: windrow.CellBody) -> None:  # the actions, by the last two of the stack and the next word
    cell.result(tanh(concat([cell.operand(H), cell.operand(H), cell.operand(H)]) @ hidden) @ out)


async def parse(
    graph: windrow.LazyGraph, forms: list[str], gold: list[int], losses: list[windrow.LazyExpr] | None = None
) -> int:
    """How many words get their head. To train, takes the actions that lead to `gold`, and adds a loss for each."""
    phrases = [embedding(table, graph.index(words[form])) for form in forms]
    stack: list[int] = []  # words count from 0, heads from 1
    following, heads = 0, [0] * len(forms)
    while following < len(forms) or len(stack) > 1:
        below, top = [-1, -1, *stack][-2:]
        scores = score(
            phrases[below] if len(stack) > 1 else None,
            phrases[top] if stack else None,
            phrases[following] if following < len(forms) else None,
        )
        if losses is None:
            allowed = [SHIFT] * (following < len(forms)) + [LEFT, RIGHT] * (len(stack) > 1)
            values = await windrow.value(scores)  # computed with those of all other sentences
            action = max(allowed, key=values.__getitem__)
        else:
            attached = top + 1 not in gold[following:]
            action = LEFT if below >= 0 and gold[below] == top + 1 else SHIFT
            if below >= 0 and gold[top] == below + 1 and attached:
                action = RIGHT
            losses.append(softmax_cross_entropy(scores, graph.index(action)))
        if action == SHIFT:
            stack.append(following)
            following += 1
        else:
            head, child = (top, below) if action == LEFT else (below, top)
            heads[child] = head + 1
            phrases[head] = attach(phrases[head], phrases[child], graph.index(action))
            stack[-2:] = [head]
    return sum(map(int.__eq__, heads, gold))


training, parsing = windrow.LazyGraph(parameters), windrow.LazyGraph(parameters, training=False)
optimiser = windrow.Adam(parameters, 0.005)
for epoch in range(10):
    for first in range(0, 120, 20):
        losses: list[windrow.LazyExpr] = []
        training.run(parse(training, one.forms, one.heads, losses) for one in sentences[first : first + 20])
        training.backward(losses)
        optimiser.step(20)
        training.clear()

right = sum(parsing.run(parse(parsing, one.forms, one.heads) for one in sentences[120:]))
total = sum(len(one.heads) for one in sentences[120:])
print(f"{right} of {total} words have the right head; {parsing.stats().flushes} flushes")

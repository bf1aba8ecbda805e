"""Lazy expressions, cells and samples as coroutines."""

import math
import random
import threading

import numpy
import pytest

import windrow

H, D, WORDS = 12, 6, 20


@pytest.fixture
def model():
    return Model()


class Model:
    def __init__(self, training=True):
        self.parameters = windrow.Parameters(seed=1)
        add = self.parameters.add
        self.words, self.win, self.rec = add("words", WORDS, D), add("win", D, H), add("rec", H, H)
        self.bias, self.out = add("bias", 1, H, "zeros"), add("out", H, 2)
        self.graph = windrow.LazyGraph(self.parameters, training=training)

    def step(self, word, state):
        return windrow.tanh(
            windrow.embedding(self.words, self.graph.index(word)) @ self.win + state @ self.rec + self.bias
        )

    def state(self, sentence):
        state = self.graph.zeros(H)
        for word in sentence:
            state = self.step(word, state)
        return state

    def numpy_state(self, sentence):
        words, win, rec, bias = (p.value.numpy() for p in (self.words, self.win, self.rec, self.bias))
        state = numpy.zeros((1, H), numpy.float32)
        for word in sentence:
            state = numpy.tanh(words[word] @ win + state @ rec + bias)
        return state[0]


def sentences(count, seed=1):
    choose = random.Random(seed)
    return [[choose.randrange(WORDS) for _ in range(choose.randrange(1, 8))] for _ in range(count)]


def test_computes_what_numpy_does(model):
    all_sentences = sentences(10)
    states = [model.state(sentence) for sentence in all_sentences]
    for state, sentence in zip(states, all_sentences):
        numpy.testing.assert_allclose(state.value(), model.numpy_state(sentence), rtol=1e-4, atol=1e-5)
    assert states[0].width == H
    assert model.graph.stats().flushes == 1
    assert model.graph.stats().batches < model.graph.stats().vertices


def test_learns(model):
    data = [(sentence, int(3 in sentence or 7 in sentence)) for sentence in sentences(60)]
    totals = []
    for _ in range(60):
        losses = [
            windrow.softmax_cross_entropy(model.state(sentence) @ model.out, model.graph.index(label))
            for sentence, label in data
        ]
        model.graph.backward(losses)
        model.parameters.sgd(0.02)
        totals.append(sum(loss.scalar() for loss in losses))
        model.graph.clear()
    assert totals[-1] < 0.6 * totals[0]


def test_operators_with_numbers_and_lists(model):
    x, y = model.graph.input([1, 2, 3]), model.graph.input([4, 5, 6])
    assert (2 * x + 1 - y / 2).value() == [1, 2.5, 4]
    assert (1 - x).value() == [0, -1, -2] and (-x).value() == [-1, -2, -3] and (x**2).value() == [1, 4, 9]
    assert windrow.concat([x, y]).value() == [1, 2, 3, 4, 5, 6]
    assert windrow.sum([x, y, x]).value() == [6, 9, 12]
    assert windrow.max([x, y]).value() == [4, 5, 6]
    assert windrow.mean([x, y]).value() == [2.5, 3.5, 4.5]
    assert windrow.mean(x).scalar() == 2
    shares = [weight.value() for weight in windrow.softmax([x, y])]
    numpy.testing.assert_allclose(numpy.sum(shares, axis=0), 1, rtol=1e-6)
    attended = windrow.dot_attention(x, [x, y], [x, y])
    assert all(1 < value <= 6 for value in attended.value())


def test_a_cell_computes_what_its_operations_do(model):
    @windrow.cell
    def step(cell):
        """One step."""
        word, state = cell.operand(D), cell.operand(H)
        cell.result(windrow.tanh(word @ model.win + state @ model.rec + model.bias))

    assert step.__doc__ == "One step."
    sentence = [3, 1, 4]
    state = None  # which counts as zero
    for word in sentence:
        state = step(windrow.embedding(model.words, model.graph.index(word)), state)
    numpy.testing.assert_allclose(state.value(), model.numpy_state(sentence), rtol=1e-4, atol=1e-5)


def test_a_cell_with_indices_a_list_and_two_results(model):
    @windrow.cell
    def read(cell):
        own = windrow.embedding(model.words, cell.index(optional=True))
        total = windrow.sum_children(cell.each(D))
        cell.result(own + total)
        cell.result(total)

    elements = [model.graph.input([float(i)] * D) for i in range(4)]
    both, total = read(model.graph.index(5), list=elements)
    assert total.value() == [6] * D
    numpy.testing.assert_allclose(both.value(), model.words.value.numpy()[5] + 6, rtol=1e-6)
    alone, _ = read(model.graph.index(-1), list=elements[:1])
    assert alone.value() == [0] * D


def test_samples_are_coroutines_that_share_batches(model):
    async def longest(sentence):
        state, seen = model.graph.zeros(H), []
        for word in sentence:
            state = model.step(word, state)
            seen.append(max(await windrow.value(state)))
        return seen

    async def nested(sentence):
        return (await longest(sentence))[-1]

    all_sentences = sentences(6)
    before = model.graph.stats().flushes
    results = model.graph.run(longest(sentence) for sentence in all_sentences)
    assert model.graph.stats().flushes - before == max(map(len, all_sentences))
    for result, sentence in zip(results, all_sentences):
        assert math.isclose(result[-1], max(model.numpy_state(sentence)), rel_tol=1e-4)
    assert model.graph.run([nested(all_sentences[0])]) == [results[0][-1]]
    assert model.graph.run([]) == []


def test_an_error_ends_its_sample_only(model):
    ended = []

    async def sample(fails):
        await windrow.value(model.graph.zeros(H))
        if fails:
            raise KeyError("this one")
        await windrow.value(model.graph.zeros(H))
        ended.append(True)

    with pytest.raises(KeyError, match="this one"):
        model.graph.run(sample(i == 1) for i in range(3))
    assert len(ended) == 2

    async def awaits_else():
        import asyncio

        await asyncio.sleep(0)

    with pytest.raises(windrow.MisuseError, match="sample 0 awaits"):
        model.graph.run([awaits_else()])


def test_errors_name_the_line(model):
    with pytest.raises(windrow.MisuseError, match="matmul: operands"):
        model.state([1]) @ model.win
    with pytest.raises(windrow.MisuseError, match="a loss of width 3; expected 1"):
        model.graph.backward([model.graph.zeros(3)])
    with pytest.raises(TypeError):
        windrow.tanh("x")
    with pytest.raises(TypeError):
        model.state([1]) @ "x"
    with pytest.raises(TypeError):
        model.graph.backward(3)
    with pytest.raises(TypeError):
        windrow.cell(lambda: None)(model.graph.zeros(1))


def test_what_a_body_was_lent_and_what_was_cleared(model):
    kept = []

    @windrow.cell
    def keeps(cell):
        kept.append(cell)
        cell.result(cell.operand(2))

    keeps(model.graph.zeros(2))
    with pytest.raises(windrow.MisuseError, match="after its function has returned"):
        kept[0].operand(2)
    x = model.graph.zeros(2)
    model.graph.clear()
    with pytest.raises(windrow.MisuseError):
        x.value()
    graph, other = model.graph, windrow.LazyGraph(model.parameters)
    with pytest.raises(windrow.MisuseError):
        windrow.concat([graph.zeros(2), other.zeros(2)])


def test_handles_may_be_dropped_by_other_threads(model):
    for _ in range(20):
        states = [model.state(sentence) for sentence in sentences(30)]
        values = states[:3]
        dropper = threading.Thread(target=states.clear)
        dropper.start()
        for value in values:
            try:
                value.value()
            except windrow.MisuseError as error:  # the other thread computes
                assert "one thread at a time" in str(error)
        dropper.join()
        model.graph.clear()

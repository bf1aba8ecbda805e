"""Runners: losses and gradients against NumPy, minibatches, inspection, errors, threads."""

import asyncio
import threading

import numpy as np
import pytest

import windrow
from windrow import Graphs, MisuseError, Runner


class TreeLstm:
    """A binary Tree-LSTM, as a vertex function and in NumPy."""

    def __init__(self, device=None, *, words=11, hidden=4, classes=3, seed=1):
        self.hidden = hidden
        self.parameters = parameters = windrow.Parameters(device, seed)
        self.words = parameters.add("words", words, hidden, windrow.init.uniform(-1, 1))
        self.leaf = parameters.add("leaf", hidden, 3 * hidden)
        self.inner = parameters.add("inner", 2 * hidden, 3 * hidden)
        self.bias = parameters.add("bias", 1, 3 * hidden, windrow.init.normal(0, 0.3))
        self.forget = parameters.add("forget", hidden, hidden, "orthogonal")
        self.head = parameters.add("head", hidden, classes)
        self.function = windrow.vertex_function(arity=2, name="tree_lstm")(self.cell)

    def cell(self, v):
        n = self.hidden
        h, c = v.state("h", n), v.state("c", n)
        left, right = v.gather(0, h), v.gather(1, h)
        word = windrow.embedding(self.words, v.pull_index("word", optional=True))
        gates = word @ self.leaf + windrow.concat([left, right]) @ self.inner + self.bias
        kept = [windrow.sigmoid(v.gather(k, h) @ self.forget + 1) * v.gather(k, c) for k in range(2)]
        memory = windrow.sigmoid(gates[:n]) * windrow.tanh(gates[2 * n :]) + kept[0] + kept[1]
        own = windrow.sigmoid(gates[n : 2 * n]) * windrow.tanh(memory)
        v.scatter(h, own)
        v.scatter(c, memory)
        v.push("logits", own @ self.head)
        v.loss(windrow.softmax_cross_entropy(own @ self.head, v.pull_index("label")))

    def loss_in_numpy(self, samples, values):
        """The loss of samples of (children, words, labels), with the values of parameters by name."""

        def sigmoid(x):
            return 1 / (1 + np.exp(-x))

        n, total, zero = self.hidden, 0.0, np.zeros(self.hidden)
        for children, words, labels in samples:
            h, c = [], []
            for below, word, label in zip(children, words, labels):
                states = [(h[k], c[k]) if k >= 0 else (zero, zero) for k in [*below, -1, -1][:2]]
                x = values["words"][word] if word >= 0 else zero
                gates = (
                    x @ values["leaf"] + np.concatenate([s[0] for s in states]) @ values["inner"] + values["bias"][0]
                )
                memory = sigmoid(gates[:n]) * np.tanh(gates[2 * n :])
                memory = memory + sum(sigmoid(s[0] @ values["forget"] + 1) * s[1] for s in states)
                h.append(sigmoid(gates[n : 2 * n]) * np.tanh(memory))
                c.append(memory)
                logits = h[-1] @ values["head"]
                if label >= 0:
                    total += np.log(np.exp(logits).sum()) - logits[label]
        return total


def random_samples(count, seed, words=11, classes=3):
    """Random binary trees: (children, words, labels), children first. Some vertices have no label."""
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        leaves = int(random.integers(1, 7))
        children, open_ = [[] for _ in range(leaves)], list(range(leaves))
        while len(open_) > 1:
            k = int(random.integers(len(open_) - 1))
            children.append(open_[k : k + 2])
            open_[k : k + 2] = [len(children) - 1]
        word = [int(random.integers(words)) if not below else -1 for below in children]
        samples.append((children, word, [int(random.integers(-1, classes)) for _ in children]))
    return samples


def graphs_of(model, samples):
    return Graphs.from_lists(model.function, [{"children": c, "word": w, "label": labels} for c, w, labels in samples])


def values_of(parameters):
    return {p.name: np.array(p.value.tolist(), np.float64) for p in parameters}


@pytest.mark.parametrize("schedule", ["level", "agenda", "serial"])
def test_a_loss_equals_that_of_numpy(schedule):
    model, samples = TreeLstm(), random_samples(13, 5)
    graphs = graphs_of(model, samples)
    runner = Runner(model.function, model.parameters, schedule=schedule)
    expected = model.loss_in_numpy(samples, values_of(model.parameters))
    assert runner.run(graphs).loss() == pytest.approx(expected, rel=1e-5)
    assert runner.differentiate(list(graphs)).loss() == pytest.approx(expected, rel=1e-5)
    assert runner.run(graphs[2]).loss() + runner.run(graphs[3:5]).loss() == pytest.approx(
        model.loss_in_numpy(samples[2:5], values_of(model.parameters)), rel=1e-5
    )


def test_gradients_equal_finite_differences():
    model, samples = TreeLstm(), random_samples(5, 6)
    values = values_of(model.parameters)
    Runner(model.function, model.parameters).differentiate(graphs_of(model, samples))
    for parameter in model.parameters:
        gradient = np.array(parameter.gradient.tolist())
        expected = np.zeros(parameter.shape)
        for at in np.ndindex(parameter.shape):
            both = []
            for step in (1e-5, -1e-5):
                moved = {**values, parameter.name: values[parameter.name].copy()}
                moved[parameter.name][at] += step
                both.append(model.loss_in_numpy(samples, moved))
            expected[at] = (both[0] - both[1]) / 2e-5
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-4, err_msg=parameter.name)


def test_outputs_have_rows_in_the_order_of_graphs_and_vertices():
    model, samples = TreeLstm(), random_samples(4, 8)
    minibatch = Runner(model.function, model.parameters).run(graphs_of(model, samples))
    logits = np.array(minibatch.output("logits").tolist())
    ends = np.cumsum([len(children) for children, _, _ in samples])
    np.testing.assert_array_equal(minibatch.at_roots("logits").tolist(), logits[ends - 1])
    rows = np.full(len(logits), -1)
    rows[[3, 1]] = [0, 1]
    np.testing.assert_array_equal(minibatch.output("logits", rows).tolist(), logits[[3, 1]])
    for call, text in [
        (lambda: minibatch.output("logit"), "there is no output 'logit'.*'logits'"),
        (lambda: minibatch.output("logits", [0]), "rows of 1 vertices; expected"),
        (lambda: minibatch.output("logits", []), "rows of 0 vertices; expected"),
        (lambda: minibatch.gradient("x"), "there is no tensor 'x'"),
    ]:
        with pytest.raises(MisuseError, match=text):
            call()


def squares():
    """A runner of y = 3 x^2, where x is a row of a given tensor, and its graphs."""

    @windrow.vertex_function()
    def function(v):
        x = v.pull_row("x", 2)
        v.push("y", 3 * x * x)

    graphs = Graphs.from_arrays(function, [0, 1, 3], [0, 0, 0, 0], [])
    return Runner(function, windrow.Parameters()), graphs


def test_tensors_are_given_and_gradients_flow_back():
    runner, graphs = squares()
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    for given in (windrow.tensor(x), x, x.tolist()):
        assert runner.run(graphs, {"x": given}).output("y").tolist() == (3 * x * x).tolist()
    minibatch = runner.record(graphs, ["y"], {"x": (windrow.tensor(x), [2, 0, 0])})
    assert minibatch.output("y").tolist() == (3 * x * x)[[2, 0, 0]].tolist()
    with pytest.raises(MisuseError, match="'x' has no gradient before backward"):
        minibatch.gradient("x")
    runner.backward(minibatch, {"y": [[1, 1], [10, 10], [100, 100]]})
    assert minibatch.gradient("x").tolist() == [[6 * 110, 12 * 110], [0, 0], [30, 36]]
    with pytest.raises(MisuseError):
        runner.backward(minibatch, {"y": x})
    with pytest.raises(MisuseError, match="'x' is pulled, but was not given"):
        runner.run(graphs)
    with pytest.raises(MisuseError, match="sample 1, vertex 1.*row 3"):
        runner.run(graphs, {"x": (x, [0, 1, 3])})
    minibatch = runner.record(graphs, {"y": [0, 0, 1]}, {"x": x})
    runner.backward(minibatch, {"y": [[1, 2], [0, 1]]})
    assert minibatch.gradient("x").tolist() == [[6, 24], [18, 48], [0, 36]]


@pytest.mark.parametrize("wrong", [None, 3, "abc", [1], [[0]], object()])
def test_wrong_types_raise_a_type_error(wrong):
    model = TreeLstm()
    runner = Runner(model.function, model.parameters)
    for call in (
        lambda: runner.run(wrong),
        lambda: runner.run([], wrong if wrong is not None else 3),
        lambda: Runner(wrong, model.parameters),
        lambda: Runner(model.function, wrong),
        lambda: runner.backward(wrong, {}),
    ):
        with pytest.raises(TypeError):
            call()


def test_misuse_is_told_at_the_call():
    model, other = TreeLstm(), TreeLstm()
    runner = Runner(model.function, model.parameters)
    for call, text in [
        (lambda: Runner(model.function, other.parameters), "parameter"),
        (lambda: Runner(model.function, []), "no sets"),
        (lambda: Runner(model.function, model.parameters, schedule="x"), "level.*agenda"),
        (lambda: Runner(model.function, model.parameters, without=["x"]), "'specialisation', 'eager'"),
        (lambda: Runner(model.function, model.parameters, ahead=0), "ahead"),
        (lambda: runner.run(graphs_of(other, random_samples(2, 1))), "sample 0"),
        (lambda: squares()[0].differentiate(squares()[1]), "loss|sample"),
        (lambda: runner.record([], ["x"]), "there is no output 'x'"),
    ]:
        with pytest.raises(MisuseError, match=text):
            call()


def test_a_loss_that_is_not_finite_names_the_vertex():
    @windrow.vertex_function()
    def function(v):
        v.loss(windrow.log(v.pull("x")))

    graphs = Graphs.from_arrays(function, [0, 1, 3], [0, 0, 0, 0], [], x=[1, 2, 0])
    minibatch = Runner(function, windrow.Parameters()).run(graphs)
    with pytest.raises(windrow.OpError) as error:
        minibatch.loss()
    assert isinstance(error.value.__cause__, windrow.NotFiniteError)
    assert "sample 1, vertex 1" in str(error.value.__cause__)


def test_a_failed_op_of_python_fails_the_loss():
    with windrow.Engine(workers=2) as engine:
        model = TreeLstm(windrow.host(engine))
        runner = Runner(model.function, model.parameters)
        engine.push(lambda: 1 / 0, mutate=model.leaf.value, name="spoil")
        with pytest.raises(windrow.OpError, match="spoil") as error:
            runner.run(graphs_of(model, random_samples(2, 1))).loss()
        assert isinstance(error.value.__cause__, ZeroDivisionError)
        assert "test_runner.py" in str(error.value)
        engine.heal(model.leaf.value.var)


def test_a_loss_may_be_awaited():
    with windrow.Engine(workers=1) as engine:
        model = TreeLstm(windrow.host(engine))
        minibatch = Runner(model.function, model.parameters).run(graphs_of(model, random_samples(3, 2)))

        async def awaited():
            await engine.ready(minibatch)
            return minibatch.loss()

        assert asyncio.run(awaited()) > 0 and engine.wait(minibatch)


def test_runners_tell_their_batches_and_plans():
    model = TreeLstm()
    graphs = graphs_of(model, random_samples(20, 3))
    runner = Runner(model.function, model.parameters)
    batches = runner.batches(graphs)
    assert sum(batch.width for batch in batches) == batches.vertices == graphs.vertices
    assert batches.fewest <= len(batches) == len(list(batches)) and batches.mean_width > 1
    assert {batch.type for batch in batches} <= set(batches.grouped.types)
    assert batches[0].type.startswith("tree_lstm, no children")
    assert batches._repr_svg_().startswith("<svg") and "0 -> " in batches.dot()
    runner.differentiate(graphs).loss()
    stats = runner.stats()
    assert (stats.minibatches, stats.vertices) == (1, graphs.vertices) and stats.batches > 0
    assert "tree_lstm, training" in runner.describe()
    timed = Runner(model.function, model.parameters, time_steps=True)
    timed.run(graphs).loss()
    assert timed.stats().times["product_ns"] > 0


def test_schedules_may_be_made_of_arrays():
    chain = windrow.TypedGraph([0, 1, 0, 1], [0, 0, 1, 2, 3], [0, 1, 2])
    schedule = windrow.make_schedule(chain, "agenda")
    assert schedule.order == [0, 1, 2, 3] and len(schedule) == windrow.fewest_batches(chain) == 4
    with pytest.raises(MisuseError):
        windrow.make_schedule(chain, "best")


def test_threads_take_turns():
    model, samples = TreeLstm(), random_samples(8, 4)
    graphs = graphs_of(model, samples)
    expected = model.loss_in_numpy(samples, values_of(model.parameters))
    runners = [Runner(model.function, model.parameters) for _ in range(2)]
    losses, errors = [], []

    def work(number):
        try:
            for _ in range(25):
                losses.append(runners[number % 2].differentiate(graphs).loss())
                model.parameters.sgd(0.0)
                losses.append(runners[number % 2].run(graphs).loss())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(losses) == 200
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_objects_may_end_in_any_order(order):
    model = TreeLstm()
    graphs = graphs_of(model, random_samples(3, 4))
    runner = Runner(model.function, model.parameters)
    minibatch = runner.differentiate(graphs)
    kept = [model, runner, graphs, minibatch]
    del model, runner, graphs, minibatch
    for k in order:
        kept[k] = None


def test_a_closed_engine_is_told():
    engine = windrow.Engine(workers=1)
    model = TreeLstm(windrow.host(engine))
    runner = Runner(model.function, model.parameters)
    graphs = graphs_of(model, random_samples(2, 4))
    minibatch = runner.differentiate(graphs)
    engine.close()
    for call in (
        lambda: runner.run(graphs),
        lambda: minibatch.loss(),
        lambda: model.parameters.sgd(0.1),
        lambda: minibatch.output("logits"),
        lambda: model.leaf.gradient,
        lambda: model.parameters.add("more", 1, 1),
        lambda: runner.stats(),
    ):
        with pytest.raises(MisuseError, match="closed"):
            call()
    assert model.leaf.shape == (4, 12) and len(model.parameters) == 6 and repr(model.leaf)

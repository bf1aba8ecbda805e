"""Parameters, optimisers, learning rates, averages and checkpoints."""

import math

import numpy as np
import pytest

import windrow
from windrow import FileError, Graphs, LearningRate, MisuseError, Parameters, Runner

from test_runner import TreeLstm, graphs_of, random_samples

X = np.random.default_rng(3).normal(size=(8, 4)).astype(np.float32)


class Regression:
    """The loss is half the squared distance of X @ w and zero, so the gradient of w is X' X w."""

    def __init__(self, seed=1, **options):
        self.parameters = Parameters(seed=seed, **options)
        self.w = self.parameters.add("w", 4, 3)

        @windrow.vertex_function()
        def function(v):
            v.loss(windrow.row_sum(windrow.square(v.pull("x", 4) @ self.w)) * 0.5)

        self.graphs = Graphs.from_arrays(function, np.arange(9), np.zeros(9, int), [], x=X)
        self.runner = Runner(function, self.parameters)

    def value(self):
        return np.array(self.w.value.tolist(), np.float64)

    def differentiate(self):
        self.runner.differentiate(self.graphs)


def gradient_of(w):
    return X.T.astype(np.float64) @ X @ w / 8


def adam(w, steps, decay=0.0, rate=0.1):
    first, second = np.zeros_like(w), np.zeros_like(w)
    for step in range(1, steps + 1):
        w = w * (1 - rate * decay)
        gradient = gradient_of(w) if decay == 0 else gradient_of(w / (1 - rate * decay))
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        w = w - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return w


def momentum(w, steps, nesterov):
    velocity = np.zeros_like(w)
    for _ in range(steps):
        gradient = gradient_of(w)
        velocity = 0.9 * velocity + gradient
        w = w - 0.1 * (gradient + 0.9 * velocity if nesterov else velocity)
    return w


def descend(w, steps):
    for _ in range(steps):
        w = w - 0.1 * gradient_of(w)
    return w


def adagrad(w, steps):
    total = np.zeros_like(w)
    for _ in range(steps):
        gradient = gradient_of(w)
        total = total + gradient**2
        w = w - 0.1 * gradient / (np.sqrt(total) + 1e-10)
    return w


def rmsprop(w, steps):
    mean = np.zeros_like(w)
    for _ in range(steps):
        gradient = gradient_of(w)
        mean = 0.99 * mean + 0.01 * gradient**2
        w = w - 0.1 * gradient / (np.sqrt(mean) + 1e-8)
    return w


@pytest.mark.parametrize(
    "make, formula",
    [
        (lambda p: windrow.Sgd(p, 0.1), descend),
        (lambda p: windrow.Momentum(p, 0.1), lambda w, n: momentum(w, n, False)),
        (lambda p: windrow.Momentum(p, 0.1, nesterov=True), lambda w, n: momentum(w, n, True)),
        (lambda p: windrow.Adagrad(p, 0.1), adagrad),
        (lambda p: windrow.RmsProp(p, 0.1), rmsprop),
        (lambda p: windrow.Adam(p, 0.1), adam),
        (lambda p: windrow.AdamW(p, 0.1, decay=0.3), lambda w, n: adam(w, n, decay=0.3)),
    ],
    ids=["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"],
)
def test_optimisers_follow_their_formulas(make, formula):
    model = Regression()
    start, optimiser = model.value(), make(model.parameters)
    for _ in range(5):
        model.differentiate()
        optimiser.step(8)
    np.testing.assert_allclose(model.value(), formula(start, 5), rtol=1e-4, atol=1e-6)
    assert optimiser.steps == 5


def test_plain_descent_needs_no_optimiser():
    model = Regression()
    start = model.value()
    model.differentiate()
    assert model.parameters.sgd(0.1 / 8) == 0
    np.testing.assert_allclose(model.value(), descend(start, 1), rtol=1e-5)
    with pytest.raises(MisuseError):
        model.parameters.sgd(math.nan)


def test_options_clip_accumulate_and_scale():
    model = Regression()
    start = model.value()
    optimiser = windrow.Sgd(model.parameters, 1.0, clip_norm=0.5, accumulate=2)
    optimiser.set(model.w, rate_factor=2.0)
    model.differentiate()
    assert not optimiser.takes_step
    optimiser.step(8)
    assert np.array_equal(model.value(), start)
    model.differentiate()
    optimiser.step(8)
    norm = optimiser.last_norm()
    gradient = gradient_of(start)
    assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
    np.testing.assert_allclose(model.value(), start - 2 * 0.5 / norm * gradient, rtol=1e-4, atol=1e-6)
    with pytest.raises(TypeError, match="got an option 'clip'; expected one of: rate, penalty, clip_norm"):
        windrow.Sgd(model.parameters, clip=3)
    with pytest.raises(MisuseError):
        windrow.Adam(model.parameters, first=2)
    with pytest.raises(MisuseError, match="tables = 'x'"):
        windrow.Adam(model.parameters, tables="x")
    with pytest.raises(MisuseError):
        optimiser.step(0)
    with pytest.raises(MisuseError, match="samples = -1; expected at least 1"):
        optimiser.step(-1)


def test_rates_are_schedules():
    rate = LearningRate.warm_up(4, LearningRate.cosine(1.0, 10, 0.1))
    assert [rate(step) for step in (0, 3, 4)] == pytest.approx([0.25, 1, 1]) and rate(100) == pytest.approx(0.1)
    assert LearningRate.steps(1.0, 2, 0.5)(5) == 0.25 and LearningRate(0.3)(7) == pytest.approx(0.3)
    model = Regression()
    start = model.value()
    optimiser = windrow.Sgd(model.parameters, LearningRate.from_function(lambda step: 0.1 if step == 0 else 0))
    for _ in range(3):
        model.differentiate()
        optimiser.step(8)
    np.testing.assert_allclose(model.value(), descend(start, 1), rtol=1e-4, atol=1e-6)
    assert optimiser.rate == 0
    plateau = windrow.Plateau(factor=0.5, patience=1)
    assert [plateau.report(loss) for loss in (1, 2, 3, 4)] == [1, 1, 0.5, 0.5]


def test_an_exception_of_a_rate_fails_the_step():
    def rate(step):
        raise KeyError("no rate")

    with windrow.Engine(workers=1) as engine:
        parameters = Parameters(windrow.host(engine))
        w = parameters.add("w", 1, 1)
        parameters.begin_minibatch()
        parameters.add_gradient(w, windrow.tensor([[1.0]], windrow.host(engine)))
        windrow.Sgd(parameters, LearningRate.from_function(rate)).step(1)
        with pytest.raises(windrow.OpError) as error:
            w.value.tolist()
        assert isinstance(error.value.__cause__, KeyError)
        engine.heal(w.value.var)
        engine.wait_all()


def test_parameters_are_set_read_and_frozen():
    parameters = Parameters(seed=2, name="set")
    w = parameters.add("w", 2, 3, "zeros")
    row = parameters.add("row", 1, 3, 0.5)
    table = parameters.add("table", np.arange(6.0).reshape(3, 2))
    shared = windrow.tensor([[1.0, 2.0]])
    alias = parameters.add("alias", shared)
    assert parameters.names() == ["w", "row", "table", "alias"] and "row" in parameters and len(parameters) == 4
    assert row.value.tolist() == [[0.5] * 3] and table.value.tolist()[2] == [4, 5]
    shared.set([[3.0, 4.0]])
    assert alias.value.tolist() == [[3, 4]]
    w.value = [[1, 2, 3], [4, 5, 6]]
    assert parameters["w"].value.tolist() == [[1, 2, 3], [4, 5, 6]]
    row.frozen = True
    assert row.frozen and not w.frozen and "frozen" in parameters._repr_html_()
    assert (
        windrow.Parameters(seed=9).add("w", 5, 5).value.tolist()
        == windrow.Parameters(seed=9).add("w", 5, 5).value.tolist()
    )
    for call, text in [
        (lambda: parameters.add("w", 1, 1), "'w'"),
        (lambda: parameters.add("v", -1, 1), "expected no negative size"),
        (lambda: parameters.add("v", 1, 1, "glrot"), "'glorot', 'he_normal'"),
        (lambda: parameters["v"], "'v'"),
        (lambda: setattr(w, "value", [[1.0]]), "a value of 1 x 1; expected 2 x 3"),
        (lambda: Parameters(non_finite="x"), "expected 'fail' or 'skip'"),
        (lambda: parameters.add_gradient(Regression().w, shared), "set"),
    ]:
        with pytest.raises(MisuseError, match=text):
            call()
    with pytest.raises(TypeError):
        parameters.add("v", 1, 1, object())


@pytest.mark.parametrize("name", ["glorot", "he_normal", "he_uniform", "orthogonal", "identity", "zeros"])
def test_initial_values_have_names_and_functions(name):
    by_name = Parameters(seed=1).add("w", 6, 4, name)
    by_function = Parameters(seed=1).add("w", 6, 4, getattr(windrow.init, name)())
    assert by_name.value.tolist() == by_function.value.tolist()


def test_rows_of_a_table_have_gradients():
    model = TreeLstm()
    samples = random_samples(1, 3)
    Runner(model.function, model.parameters).differentiate(graphs_of(model, samples))
    rows, gradients = model.words.gradient_rows
    used = sorted({word for word in samples[0][1] if word >= 0})
    assert [row for (row,) in rows.tolist()] == used and gradients.shape == (len(used), 4)
    np.testing.assert_array_equal(np.array(model.words.gradient.tolist())[used], gradients.tolist())
    assert model.leaf.gradient_rows is None


def test_a_skipped_step_is_reported():
    model = Regression(non_finite="skip")
    model.w.value = np.full((4, 3), 1e30)
    before = model.value()
    model.differentiate()
    model.parameters.sgd(0.1)
    assert np.array_equal(model.value(), before)
    skipped = model.parameters.skipped_steps()
    assert skipped["count"] == 1 and skipped["last"][0][0] == 0 and "loss" in skipped["last"][0][1]


def test_averages_swap_with_values():
    model = Regression()
    averages = windrow.Averages(model.parameters, decay=0.5)
    first = model.value()
    averages.update()
    model.differentiate()
    model.parameters.sgd(0.05)
    second = model.value()
    averages.update()
    averages.swap()
    np.testing.assert_allclose(model.value(), (first + second) / 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(MisuseError):
        averages.update()
    averages.swap()
    assert np.array_equal(model.value(), second) and averages.updates == 2


def test_a_tree_lstm_learns_which_word_occurs():
    model = TreeLstm(hidden=8, classes=2)
    samples = [
        (children, words, [-1] * (len(words) - 1) + [int(3 in words)])
        for children, words, _ in random_samples(200, 11, words=6)
    ]
    graphs, runner = graphs_of(model, samples), Runner(model.function, model.parameters)
    optimiser = windrow.Adam(model.parameters, 0.02)
    losses = []
    for epoch in range(12):
        minibatches = []
        for minibatch in graphs.minibatches(20, shuffle=epoch):
            minibatches.append(runner.differentiate(minibatch))
            optimiser.step(len(minibatch))
        losses.append(sum(m.loss() for m in minibatches) / len(graphs))
    labels = np.array([labels[-1] for _, _, labels in samples])
    logits = np.array(runner.run(graphs).at_roots("logits").tolist())
    assert losses[-1] < losses[0] / 4 and (logits.argmax(1) == labels).mean() > 0.97


def trained(model, optimiser, steps):
    for _ in range(steps):
        model.differentiate()
        optimiser.step(8)
    return model.value()


def test_a_checkpoint_continues_with_the_same_bits(tmp_path):
    model = Regression()
    optimiser, averages = windrow.Adam(model.parameters, 0.05), windrow.Averages(model.parameters)
    trained(model, optimiser, 3)
    averages.update()
    with pytest.raises(FileError):
        windrow.CheckpointFolder(tmp_path / "none").newest()
    writer = windrow.CheckpointWriter(tmp_path / "run", keep=2)
    record = {"epoch": 3, "rate": 0.5, "names": ["a", "b"], "sizes": {"h": 4, "least": -1}, "best": -math.inf}
    writer.write(3, windrow.Snapshot(model.parameters, optimiser, averages), record)
    expected = trained(model, optimiser, 3)

    with pytest.raises(MisuseError, match="text 'NaN'"):
        writer.write(4, windrow.Snapshot(model.parameters), {"word": "NaN"})
    with pytest.raises(FileError, match="locked"):
        windrow.CheckpointWriter(tmp_path / "run")
    checkpoint, skipped = windrow.CheckpointFolder(tmp_path / "run").newest()
    assert (checkpoint.step, skipped) == (3, []) and record.items() <= checkpoint.record.items()
    assert "w" in checkpoint.names and checkpoint.tensor("w").shape == (4, 3)
    other = Regression(seed=5)
    again, more = windrow.Adam(other.parameters, 0.05), windrow.Averages(other.parameters)
    checkpoint.restore(other.parameters, again, more)
    assert np.array_equal(trained(other, again, 3), expected)

    fresh = Regression(seed=6)
    checkpoint.restore_for_use(fresh.parameters)
    assert np.array_equal(fresh.value(), np.array(checkpoint.tensor("average/w"), np.float64))
    with pytest.raises(FileError):
        checkpoint.restore(TreeLstm().parameters)
    with pytest.raises(MisuseError, match="of other parameters"):
        windrow.Snapshot(Regression().parameters, optimiser)


def test_damaged_checkpoints_are_skipped(tmp_path):
    model = Regression()
    writer = windrow.CheckpointWriter(tmp_path)
    for step in (1, 2):
        writer.write(step, windrow.Snapshot(model.parameters))
    folder = windrow.CheckpointFolder(tmp_path)
    assert folder.steps() == [1, 2]
    file = next(tmp_path.glob("*002.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    checkpoint, skipped = folder.newest()
    assert checkpoint.step == 1 and len(skipped) == 1
    with pytest.raises(FileError):
        folder.load(2)
    for wrong in ({"x": [None]}, {"x": True}, {1: "x"}, {"x": object()}):
        with pytest.raises(TypeError):
            writer.write(3, windrow.Snapshot(model.parameters), wrong)
    with pytest.raises(MisuseError):
        writer.write(3, windrow.Snapshot(model.parameters), {"training": 1})


def test_several_sets_have_names_in_a_checkpoint(tmp_path):
    encoder, decoder = Parameters(seed=1, name="encoder"), Parameters(seed=2, name="decoder")
    values = [of.add("w", 2, 2).value.tolist() for of in (encoder, decoder)]
    snapshot = windrow.Snapshot(encoder, name="encoder")
    snapshot.add(decoder, name="decoder")
    windrow.CheckpointWriter(tmp_path).write(1, snapshot)
    checkpoint = windrow.CheckpointFolder(tmp_path).load(1)
    other = Parameters(seed=3)
    other.add("w", 2, 2)
    checkpoint.restore(other, name="decoder")
    assert checkpoint.names == ["encoder/w", "decoder/w"] and other["w"].value.tolist() == values[1]

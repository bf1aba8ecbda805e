"""What users of NumPy and PyTorch try with tensors and expressions: it works, or says what to do instead."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import windrow

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
X, I = windrow.tensor(ROWS), windrow.tensor([1, 0])
PARAMETERS = windrow.Parameters()
W, ROW = PARAMETERS.add("w", 3, 2, 0.5), PARAMETERS.add("row", 1, 3, 2.0)
GRAPH = windrow.LazyGraph(PARAMETERS)
LAZY = GRAPH.input([1.0, 2.0, 3.0])


def in_body(call):
    """Runs the call with the vertex of a body, and lets its exception through."""

    @windrow.vertex_function()
    def body(v):
        v.push("y", v.pull("z", 3))
        call(v)

    return body


@pytest.mark.parametrize("value", [X, I, W, W * 2, LAZY], ids=lambda value: type(value).__name__)
def test_comparisons_raise_and_hashes_remain(value):
    other = windrow.tensor([1.0])
    for compare in (lambda: value == value, lambda: value != other, lambda: value == 1, lambda: value == "a"):
        with pytest.raises(TypeError, match="== or != of .*; expected"):
            compare()
    assert value in [value] and {value: 3}[value] == 3 and len({value, other}) == 2


def test_comparisons_with_arrays_are_not_silent():
    with pytest.raises(TypeError, match="=="):
        np.ones((2, 3)) == X
    with pytest.raises(TypeError, match="=="):
        windrow.argmax(X) == np.ones(2)
    assert np.array_equal(np.array([1, 1]) == I, [[True, False]])


def test_expressions_in_bodies_have_no_truth_and_no_elements():
    def check(v):
        x, index = v.pull("x", 3), v.pull_index("i")
        for wrong in (lambda: x == x, lambda: index == 1, lambda: bool(x), lambda: np.asarray(x), lambda: x[0]):
            with pytest.raises(TypeError, match="; expected"):
                wrong()
        for wrong in (lambda: x + np.ones(3), lambda: np.ones(3) * x, lambda: x - X):
            with pytest.raises(TypeError, match=r"^[-+*] of \(Expr, \w+\); expected an expression"):
                wrong()
        assert windrow.concat(x, x, ROW).width == windrow.concat([x, x, ROW]).width == 9
        assert (x + np.float32(1)).width == 3

    in_body(check)


def test_lazy_expressions():
    for wrong in (lambda: bool(LAZY), lambda: bool(W * 2), lambda: bool(W), lambda: np.asarray(LAZY), lambda: LAZY[0]):
        with pytest.raises(TypeError, match="; expected"):
            wrong()
    for wrong in (lambda: LAZY + np.ones(3), lambda: np.ones(3) + LAZY, lambda: LAZY + X):
        with pytest.raises(TypeError, match=r"^\+ of \(LazyExpr, \w+\); expected an expression"):
            wrong()
    assert windrow.concat(LAZY, ROW).value() == windrow.concat([LAZY, ROW]).value() == [1, 2, 3, 2, 2, 2]
    assert (np.float32(2) * LAZY).value() == [2, 4, 6]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: windrow.softmax_cross_entropy(X, 1), r"softmax_cross_entropy\(Tensor, int\); .*IntTensor"),
        (lambda: windrow.softmax_cross_entropy(LAZY, X), r"softmax_cross_entropy\(LazyExpr, Tensor\)"),
        (lambda: windrow.hinge(X, [1, 0]), r"hinge\(Tensor, list, \.\.\.\)"),
        (lambda: windrow.embedding(W, 1), r"embedding\(Parameter, int\); .*pull_index"),
        (lambda: windrow.tanh("a"), r"tanh\(str\); expected operands of one kind"),
        (lambda: windrow.matmul(X, LAZY), r"matmul\(Tensor, LazyExpr\); expected operands of one kind"),
        (lambda: windrow.matmul(x=X, y=3), r"matmul\(Tensor, int\)"),
        (lambda: windrow.sum(3), r"sum\(int\); expected a list"),
        (lambda: windrow.max(X), r"max\(Tensor\); expected a list"),
        (lambda: windrow.mean("x"), r"mean\(str\)"),
        (lambda: windrow.mean(I), r"mean\(IntTensor\); .*; x.astype\('float32'\) makes a Tensor"),
        (lambda: windrow.concat(X, LAZY), r"concat\(Tensor, LazyExpr\); expected"),
        (lambda: windrow.concat([X, 1]), r"concat\(Tensor, int\); expected"),
    ],
)
def test_wrong_arguments_are_explained_in_one_line(call, text):
    with pytest.raises(TypeError, match=text) as caught:
        call()
    assert "\n" not in str(caught.value) and "_windrow" not in str(caught.value)


def test_truth_and_numbers_of_one_element():
    assert bool(windrow.ones(1, 1)) and not windrow.zeros(1, 1) and not windrow.tensor(0)
    assert float(X.sum()) == 21 and int(X.mean()) == 3 and int(I[0, 0]) == 1 and f"{float(X[0, 1]):.2f}" == "2.00"
    for convert in (bool, float, int):
        with pytest.raises(windrow.MisuseError, match="of a tensor of 2 x 3; expected 1 x 1"):
            convert(X)
    with pytest.raises(ValueError, match="NaN"):
        int(windrow.full(1, 1, float("nan")))


def test_shapes():
    assert np.array_equal(X.T, np.array(ROWS, dtype=np.float32).T) and X.size == 6 and I.size == 2
    for made in (windrow.zeros(2, 3), windrow.zeros((2, 3)), windrow.full((2, 3), 0.0)):
        assert np.array_equal(made, np.zeros((2, 3), dtype=np.float32))
    assert windrow.ones((1, 2), dtype="int32").tolist() == [[1, 1]]
    assert windrow.concat([X, X]).shape == windrow.concat(X, X).shape == (2, 6)


@pytest.mark.parametrize("axis", [0, 1, -1, -2, None])
def test_sum_and_mean_are_those_of_numpy(axis):
    of = np.array(ROWS, dtype=np.float32)
    for name in ("sum", "mean"):
        expected = getattr(np, name)(of, axis=axis, keepdims=True)
        assert np.allclose(getattr(X, name)(axis), expected)
        assert np.allclose(getattr(windrow, name)(X, axis=axis), expected)
    with pytest.raises(windrow.MisuseError, match="axis 2; expected 0, 1 or None"):
        X.sum(2)


def test_gradients_of_sum_mean_and_transpose():
    with windrow.Tape() as tape:
        tape.watch(X, W.value)
        loss = ((X @ W).T.mean(1) * 3 + X.sum(0).mean()).sum()
    tape.backward(loss)
    assert np.allclose(tape.gradient(X), np.full((2, 3), 3 * 0.5 * 2 / 2 + 2 / 3))
    assert np.allclose(tape.gradient(W.value), np.repeat(np.sum(ROWS, axis=0)[:, None] * 3 / 2, 2, axis=1))
    with windrow.Tape() as tape:
        pass
    with pytest.raises(windrow.MisuseError, match="depends on no watched one"):
        tape.backward(X)


def test_parameters_are_operands_by_their_value():
    of, w, row = np.array(ROWS), W.numpy(), np.asarray(ROW)
    assert w.shape == (3, 2) and np.all(w == 0.5) and np.all(row == 2)
    for made, expected in [(X @ W, of @ w), (W @ X, w @ of), (X + ROW, of + row), (ROW * X, row * of)]:
        assert isinstance(made, windrow.Tensor) and np.allclose(made, expected)


def test_labels_of_a_row():
    column = windrow.tensor([[1], [0]])
    for call in (
        lambda index: windrow.softmax_cross_entropy(X, index),
        lambda index: windrow.pick(X, index),
        lambda index: windrow.hinge(X, index),
        lambda index: windrow.embedding(X, index),
        lambda index: windrow.gather_rows(X, index),
        lambda index: windrow.scatter_rows(X, index, 3),
    ):
        assert np.array_equal(call(I), call(column))
    with pytest.raises(windrow.MisuseError):
        windrow.pick(X, windrow.tensor([0, 1, 2]))


def test_astype():
    numbers = windrow.argmax(X).astype("int32")
    assert isinstance(numbers, windrow.IntTensor) and windrow.pick(X, numbers).tolist() == [[3], [6]]
    assert I.astype("float32").tolist() == [[1, 0]] and X.astype("float32") is not None
    assert windrow.tensor([[1.9, -1.9]]).astype("int32").tolist() == [[1, -1]]
    for number in (3e9, -3e9, float("nan")):
        with pytest.raises(windrow.OpError, match="expected numbers of int32") as failed:
            windrow.full(1, 1, number).astype("int32").numpy()
        windrow.default_engine().heal(failed.value)
    with pytest.raises(windrow.MisuseError, match="dtype 'int64'; expected"):
        X.astype("int64")


def test_copies_have_memory_of_their_own():
    for made in (copy.copy(X), copy.deepcopy([X])[0], X.copy(), pickle.loads(pickle.dumps(X))):
        made.set(np.zeros((2, 3)))
        assert X.tolist() == ROWS and made.tolist() == np.zeros((2, 3)).tolist()
    part, numbers, empty = pickle.loads(pickle.dumps((X[:, 1:2], I, windrow.zeros(0, 3))))
    assert part.tolist() == [[2], [5]] and numbers.tolist() == [[1, 0]] and empty.shape == (0, 3)
    assert isinstance(numbers, windrow.IntTensor)
    with pytest.raises(windrow.MisuseError, match="from 3 bytes; expected those of 1 x 1"):
        windrow.Tensor.__new__(windrow.Tensor).__setstate__((1, 1, b"123"))


def test_changes_in_place():
    x = old = X.copy()
    part = x[0:1]
    for change in ("part += 1", "part -= x", "part *= 2.0", "part /= 2"):
        with pytest.raises(windrow.MisuseError, match="in place of a view of a part"):
            exec(change, {"part": part, "x": x})
    x += 1
    assert x.tolist() == (np.array(ROWS) + 1).tolist() and old.tolist() == ROWS
    w = PARAMETERS.add("w2", 1, 2, 0.0)
    w.value += 1
    assert w.numpy().tolist() == [[1, 1]]


def test_repr_shows_values_that_are_there_and_never_waits():
    engine = windrow.Engine(workers=1)
    host = windrow.host(engine)
    x, go = windrow.tensor([[1.0, 2.5]], host), threading.Event()
    engine.wait_all()
    assert repr(x) == "<windrow.Tensor 1 x 2: [[1, 2.5]]>"
    engine.push(go.wait, mutate=x)
    assert repr(x) == "<windrow.Tensor 1 x 2, pending>"
    go.set()
    engine.wait_all()
    assert repr(windrow.empty(2, 3, host)) == "<windrow.Tensor 2 x 3>"
    assert repr(windrow.ones(9, 9, host)) == "<windrow.Tensor 9 x 9>"
    engine.push(lambda: 1 / 0, mutate=x)
    with pytest.raises(windrow.OpError):
        engine.wait_all()
    assert repr(x) == "<windrow.Tensor 1 x 2, failed>"
    engine.push(lambda: None, overwrite=x)
    x[0, 0:1].set(3.0)
    engine.wait(x)
    assert repr(x) == "<windrow.Tensor 1 x 2: [[3, 2.5]]>"
    engine.close()
    assert repr(x) == "<windrow.Tensor 1 x 2>"

"""Operators of tensors against NumPy, broadcasting, and gradients against finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow

settings.register_profile("windrow", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("windrow")


def array(rows, width, seed, low=-3.0, high=3.0):
    return np.random.default_rng(seed).uniform(low, high, (rows, width)).astype(np.float32)


def close(x, expected, error=2e-6):
    expected = np.asarray(expected, np.float64)
    assert x.shape == expected.shape
    np.testing.assert_allclose(x.numpy(), expected, rtol=error, atol=error)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def matrices(x, rows):
    return x.reshape(len(x), rows, -1)


UNARY = {
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "square": np.square,
    "abs": np.abs,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * sigmoid(x),
    "stop_gradient": lambda x: x,
    "row_sum": lambda x: x.sum(1, keepdims=True),
    "column_sum": lambda x: x.sum(0, keepdims=True),
    "row_max": lambda x: x.max(1, keepdims=True),
    "log_sum_exp": lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
    "softmax": softmax,
    "log_softmax": lambda x: np.log(softmax(x)),
    "argmax": lambda x: x.argmax(1)[:, None],
    "mean": lambda x: x.mean(keepdims=True),
    "transpose": np.transpose,
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "reverse_gradient": lambda x: x,
    "layer_norm": lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    "rms_norm": lambda x: x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=10)
@given(st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**30))
def test_functions_of_a_value(name, rows, width, seed):
    x = array(rows, width, seed)
    if name in ("layer_norm", "rms_norm") and width == 1:
        return
    close(getattr(windrow, name)(windrow.tensor(x)), UNARY[name](x.astype(np.float64)), 2e-5)


@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**30))
def test_functions_of_positive_values(rows, width, seed):
    x = array(rows, width, seed, 0.1, 4)
    close(windrow.log(windrow.tensor(x)), np.log(x))
    close(windrow.sqrt(windrow.tensor(x)), np.sqrt(x))
    close(windrow.tensor(x) ** 1.5, x**1.5, 1e-5)
    close(windrow.pow(windrow.tensor(x), -2), x**-2.0, 1e-5)


@given(st.integers(1, 5), st.integers(1, 8), st.integers(1, 8), st.integers(0, 2**30))
def test_products(n, k, m, seed):
    x, y, z = array(n, k, seed), array(k, m, seed + 1), array(n, k, seed + 2)
    a, b, c = windrow.tensor(x), windrow.tensor(y), windrow.tensor(z)
    close(a @ b, x @ y, 1e-5)
    close(windrow.matmul(a, b), x @ y, 1e-5)
    close(windrow.matmul_nt(a, c), x @ z.T, 1e-5)
    close(windrow.matmul_tn(a, c), x.T @ z, 1e-5)
    close(windrow.row_dot(a, c), (x * z).sum(1, keepdims=True), 1e-5)
    close(windrow.squared_distance(a, c), ((x - z) ** 2).sum(1, keepdims=True), 1e-5)
    pairs = x[:, :, None].astype(np.float64) + y[None]
    close(windrow.log_matmul(a, b), np.log(np.exp(pairs).sum(1)), 1e-5)
    close(windrow.max_matmul(a, b), pairs.max(1))
    close(windrow.argmax_matmul(a, b), pairs.argmax(1))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**30))
def test_products_of_each_row(n, r, k, m, seed):
    x, y, z = array(n, r * k, seed), array(n, k * m, seed + 1), array(n, m * k, seed + 2)
    a, b, c = windrow.tensor(x), windrow.tensor(y), windrow.tensor(z)
    close(windrow.matmul_each(a, b, r), (matrices(x, r) @ matrices(y, k)).reshape(n, -1), 1e-5)
    transposed = matrices(z, m).transpose(0, 2, 1)
    close(windrow.matmul_each_nt(a, c, r), (matrices(x, r) @ transposed).reshape(n, -1), 1e-5)


BINARY = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "/": (lambda x, y: x / y, lambda x, y: x / y),
    "maximum": (lambda x, y: windrow.maximum(x, y), np.maximum),
    "minimum": (lambda x, y: windrow.minimum(x, y), np.minimum),
    "log_add_exp": (lambda x, y: windrow.log_add_exp(x, y), np.logaddexp),
}
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 70)).flatmap(
    lambda s: st.tuples(*[st.sampled_from([s, (1, s[1]), (s[0], 1), (1, 1)])] * 2)
)


@pytest.mark.parametrize("name", BINARY)
@given(SHAPES, st.integers(0, 2**30))
def test_elementwise_operators_broadcast(name, shapes, seed):
    x, y = array(*shapes[0], seed, 0.2, 3), array(*shapes[1], seed + 1, 0.2, 3)
    ours, numpys = BINARY[name]
    expected = numpys(x.astype(np.float64), y.astype(np.float64))
    close(ours(windrow.tensor(x), windrow.tensor(y)), expected, 1e-5)
    if name in "+-*/":  # with arrays of NumPy on either side
        close(ours(windrow.tensor(x), y), expected, 1e-5)
        close(ours(x, windrow.tensor(y)), expected, 1e-5)


@given(st.integers(1, 4), st.integers(1, 20), st.floats(0.1, 5), st.integers(0, 2**30))
def test_operators_with_numbers(rows, width, c, seed):
    x = array(rows, width, seed, 0.2, 3)
    a, x = windrow.tensor(x), x.astype(np.float64)
    for ours, expected in [
        (a + c, x + c), (c + a, c + x), (a - c, x - c), (c - a, c - x), (a * c, x * c), (c * a, c * x), (a / c, x / c),
        (c / a, c / x), (-a, -x), (abs(-a), x), (a + 1, x + 1), (2 * a, 2 * x), (np.float32(2) * a, 2 * x),
        (a * np.float64(2), 2 * x), (a**2, x**2), (windrow.scale_shift(a, c, 2), c * x + 2),
        (windrow.clamp(a, 0.5, 2), np.clip(x, 0.5, 2)), (windrow.elu(-a, c), c * (np.exp(-x) - 1)),
        (windrow.leaky_relu(-a, c), -c * x),
    ]:  # fmt: skip
        close(ours, expected, 1e-5)


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**30))
def test_columns_and_indices(rows, width, seed):
    random = np.random.default_rng(seed)
    x, z = array(rows, width, seed), array(rows, 3, seed + 1)
    label = random.integers(0, width, (rows, 1)).astype(np.int32)
    a, i = windrow.tensor(x), windrow.tensor(label)
    x = x.astype(np.float64)
    close(windrow.concat(a, windrow.tensor(z), a), np.concatenate([x, z, x], 1))
    begin, end = sorted(random.integers(0, width + 1, 2))
    close(windrow.slice(a, begin, end), x[:, begin:end])
    k = int(random.integers(1, width + 1))
    order = np.argsort(-x, 1, kind="stable")[:, :k]
    close(windrow.top_k(a, k), np.take_along_axis(x, order, 1))
    close(windrow.top_k(a, k, by_place=True), np.take_along_axis(x, np.sort(order, 1), 1))
    close(windrow.arg_top_k(a, k), order)
    close(windrow.pick(a, i), np.take_along_axis(x, label, 1))
    loss = -np.take_along_axis(np.log(softmax(x)), label, 1)
    close(windrow.softmax_cross_entropy(a, i), loss, 2e-5)
    smoothed = 0.9 * loss - 0.1 * np.log(softmax(x)).mean(1, keepdims=True)
    close(windrow.smoothed_cross_entropy(a, i, 0.1), smoothed, 2e-5)
    if width > 1:
        others = x.copy()
        np.put_along_axis(others, label, -np.inf, 1)
        margin = 1 + others.max(1, keepdims=True) - np.take_along_axis(x, label, 1)
        close(windrow.hinge(a, i), np.maximum(margin, 0), 1e-5)
    target = random.uniform(0, 1, (rows, width))
    bce = np.log1p(np.exp(x)) - x * target
    close(windrow.binary_cross_entropy(a, windrow.tensor(target)), bce, 2e-5)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**30))
def test_rows_and_segments(rows, width, n, seed):
    random = np.random.default_rng(seed)
    x = array(rows, width, seed)
    index = random.integers(0, rows, (n, 1)).astype(np.int32)
    a, i = windrow.tensor(x), windrow.tensor(index)
    for gather in [windrow.gather_rows, windrow.embedding]:
        close(gather(a, i), x[index[:, 0]])
    bags = random.integers(-1, rows, (n, 2)).astype(np.int32)
    close(windrow.embedding_bag(a, windrow.tensor(bags)), (x[bags] * (bags >= 0)[:, :, None]).sum(1), 1e-5)
    scattered = np.zeros((rows, width))
    y = array(n, width, seed + 1)
    np.add.at(scattered, index[:, 0], y)
    close(windrow.scatter_rows(windrow.tensor(y), i, rows), scattered, 1e-5)
    bounds = np.sort(random.integers(0, rows + 1, (n, 2)), 1).astype(np.int32)
    for name, reduce in [("segment_sum", np.sum), ("segment_mean", np.mean), ("segment_max", np.max)]:
        expected = [reduce(x[b:e], 0) if b < e else np.zeros(width) for b, e in bounds]
        close(getattr(windrow, name)(a, windrow.tensor(bounds)), expected, 1e-5)
    row, column = array(1, width, seed), array(rows, 1, seed)
    close(windrow.broadcast_to(windrow.tensor(row), n, width), np.broadcast_to(row, (n, width)))
    close(windrow.broadcast_to(windrow.tensor(column), rows, n), np.broadcast_to(column, (rows, n)))


def test_images():
    window = windrow.Window2d(2, 5, 4, 3, 2, stride=1, padding=1)
    assert (window.image, window.window) == (40, 12)
    images, filters, bias = array(3, 40, 1), array(5, 12, 2), array(1, 5, 3)
    padded = np.pad(images.reshape(3, 2, 5, 4), ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))
    expected = np.einsum("ncijab,fcab->nfij", patches, filters.reshape(5, 2, 3, 2))
    assert window.positions == expected.shape[2] * expected.shape[3]
    result = windrow.conv2d(windrow.tensor(images), windrow.tensor(filters), window)
    close(result, expected.reshape(3, -1), 1e-5)
    expected += bias.reshape(1, 5, 1, 1)
    close(windrow.add_channel_bias(result, windrow.tensor(bias)), expected.reshape(3, -1), 1e-5)
    pool = windrow.Window2d(2, 5, 4, 2, 2)
    patches = np.lib.stride_tricks.sliding_window_view(images.reshape(3, 2, 5, 4), (2, 2), (2, 3))
    close(windrow.max_pool2d(windrow.tensor(images), pool), patches.max((4, 5)).reshape(3, -1))
    with pytest.raises(windrow.MisuseError):
        windrow.Window2d(1, 2, 2, 3, 3)


def test_random_operators_are_reproducible():
    x, keys = windrow.tensor(array(50, 4, 1)), windrow.empty(50, 3, dtype="int32")
    windrow.Generator(1).dropout_keys(keys)
    drawn = windrow.sample(x, keys, seed=3).numpy()
    assert set(np.unique(drawn)) <= {0, 1, 2, 3}
    assert np.array_equal(drawn, windrow.sample(x, keys, seed=3).numpy())
    assert not np.array_equal(drawn, windrow.sample(x, keys, seed=4).numpy())
    with pytest.raises(windrow.MisuseError, match="without keys"):
        windrow.dropout(x, 0.5)


X, Y, ROW, I = windrow.full(2, 3, 1.0), windrow.full(3, 2, 1.0), windrow.full(1, 4, 1.0), windrow.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: X + Y, windrow.MisuseError, "add: operands 2 x 3, 3 x 2"),
        (lambda: X * ROW, windrow.MisuseError, "mul: operands"),
        (lambda: X @ X, windrow.MisuseError, "matmul: operands 2 x 3, 2 x 3"),
        (lambda: X + I, TypeError, "unsupported operand"),
        (lambda: X + "1", TypeError, "unsupported operand"),
        (lambda: [1] * X, TypeError, "can't multiply sequence|unsupported operand"),
        (lambda: X + None, TypeError, "unsupported operand"),
        (lambda: X**0, windrow.MisuseError, "pow"),
        (lambda: windrow.tanh(3), TypeError, "tanh"),
        (lambda: windrow.tanh(), TypeError, "tanh"),
        (lambda: windrow.tanh(None), TypeError, "tanh"),
        (lambda: windrow.pick(X, X), TypeError, "pick"),
        (lambda: windrow.slice(X, 2, 9), windrow.MisuseError, "slice"),
        (lambda: windrow.top_k(X, 0), windrow.MisuseError, "expected"),
        (lambda: windrow.concat(), windrow.MisuseError, "concat of nothing"),
        (lambda: windrow.concat(X, 1), TypeError, "concat"),
        (lambda: windrow.concat(X, Y), windrow.MisuseError, "concat: operands"),
        (lambda: windrow.mean(windrow.empty(2, 0)), windrow.MisuseError, "width 0"),
        (lambda: windrow.sgd(X, Y, 0.1), windrow.MisuseError, "sgd"),
    ],
)
def test_errors_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_errors_of_ops_name_the_line_and_the_operator():
    bad = windrow.softmax_cross_entropy(X, windrow.tensor([[0], [5]]))
    with pytest.raises(windrow.OpError, match=r"softmax_cross_entropy.*test_operators\.py:\d+"):
        bad.numpy()


GRADIENTS = {
    "affine": lambda x, w, b: windrow.tanh(x @ w + b),
    "row": lambda x, w, b: (x @ w) * b,
    "minus row": lambda x, w, b: b - x @ w,
    "over row": lambda x, w, b: (x @ w) / (b * b + 1),
    "column": lambda x, w, b: x * windrow.row_sum(x @ w) - windrow.row_sum(b),
    "outer": lambda x, w, b: windrow.row_sum(x) + b,
    "maximum": lambda x, w, b: windrow.maximum(x @ w, b),
    "softmax": lambda x, w, b: windrow.softmax(x @ w + b) ** 2,
    "norm": lambda x, w, b: windrow.layer_norm(x @ w) * b,
    "concat": lambda x, w, b: windrow.square(windrow.concat(x, windrow.slice(x @ w, 1, 3))) + windrow.row_sum(b),
    "transpose": lambda x, w, b: windrow.sigmoid(windrow.transpose(w) @ windrow.transpose(x)),
    "each": lambda x, w, b: windrow.matmul_each(x @ w, x @ w + b, 2),
    "log": lambda x, w, b: windrow.log_add_exp(x @ w, windrow.softplus(b)) / 3 - 2,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_finite_differences(name):
    values = [array(3, 2, 1), array(2, 4, 2), array(1, 4, 3)]
    weights = None

    def loss(arrays, tape=None):
        nonlocal weights
        tensors = [windrow.tensor(a) for a in arrays]
        if tape is not None:
            tape.watch(*tensors)
        y = GRADIENTS[name](*tensors)
        if weights is None:
            weights = windrow.tensor(array(*y.shape, 9))
        return tensors, windrow.column_sum(windrow.row_sum(y * weights))

    with windrow.Tape() as tape:
        tensors, y = loss(values, tape)
    tape.backward(y)
    for k, tensor in enumerate(tensors):
        gradient = tape.gradient(tensor)
        got = np.zeros(values[k].shape) if gradient is None else gradient.numpy()
        for at in np.ndindex(values[k].shape):
            step = 1e-2
            moved = [[a.copy() for a in values] for _ in range(2)]
            moved[0][k][at] += step
            moved[1][k][at] -= step
            up, down = (loss(m)[1].item() for m in moved)
            assert got[at] == pytest.approx((up - down) / (2 * step), rel=2e-2, abs=2e-2)

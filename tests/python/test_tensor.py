"""Tensors: their elements from and to Python, views, errors, engines that end."""

import array
import gc
import threading

import numpy as np
import pytest

import windrow


@pytest.fixture
def device(engine):
    return windrow.host(engine)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (2.5, [[2.5]]),
        ([1.0, 2], [[1, 2]]),
        (((1.5,), (2,)), [[1.5], [2]]),
        ([], [[]]),
        ([[], []], [[], []]),
        (np.float32(3), [[3]]),
        (np.array(4.0), [[4]]),
        (np.arange(3.0), [[0, 1, 2]]),
        (np.arange(6.0).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]]),
        (np.arange(12.0).reshape(3, 4)[::-1, ::2], [[8, 10], [4, 6], [0, 2]]),
        (np.array([1.5, -0.25, 65504, 6e-8, np.inf], np.float16), [[1.5, -0.25, 65504, 5.960464477539063e-08, np.inf]]),
        (array.array("d", [1, 2]), [[1, 2]]),
        ([np.float64(1), np.float32(2)], [[1, 2]]),
        ([np.array([1.0, 2.0]), [3, 4]], [[1, 2], [3, 4]]),
    ],
)
def test_floats_become_a_tensor(data, expected):
    x = windrow.tensor(data)
    assert isinstance(x, windrow.Tensor)
    assert x.tolist() == expected
    assert x.dtype == "float32"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (3, [[3]]),
        ([1, -2], [[1, -2]]),
        (True, [[1]]),
        (np.array([[1], [2]]), [[1], [2]]),
        (np.array([True, False]), [[1, 0]]),
        (np.array([200], np.uint8), [[200]]),
        (np.array([2**30], np.uint64), [[2**30]]),
        (b"abc", [[97, 98, 99]]),
        (array.array("h", [-1]), [[-1]]),
        ([np.int64(5)], [[5]]),
    ],
)
def test_integers_become_an_int_tensor(data, expected):
    x = windrow.tensor(data)
    assert isinstance(x, windrow.IntTensor)
    assert x.tolist() == expected
    assert windrow.tensor(data, dtype="float32").tolist() == expected


class WithArrayInterface:
    def __init__(self, of):
        self.__array_interface__ = of.__array_interface__
        self.of = of


def test_array_interface_is_read():
    assert windrow.tensor(WithArrayInterface(np.array([[1.0, 2]]))).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "data", ["abc", [None], object(), np.array(["a"]), np.ones(2, complex), {1: 2}, [[object()]], ["a"]]
)
def test_other_data_is_a_type_error(data):
    with pytest.raises(TypeError):
        windrow.tensor(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([[[1.0]]], "3 dimensions; expected at most two"),
        (np.ones((1, 1, 1)), "3 dimensions; expected at most two"),
        ([[1, 2], [3]], "a row of 1 elements after one of 2"),
        ([1, [2]], "a list of numbers and lists"),
        (2**31, "expected integers from -2147483648 to 2147483647"),
        (np.array([-(2**31) - 1]), "expected integers from"),
    ],
)
def test_data_that_does_not_fit_is_misuse(data, text):
    with pytest.raises(windrow.MisuseError, match=text):
        windrow.tensor(data)


def test_floats_as_integers_must_be_whole():
    assert windrow.tensor([1.0, 2.0], dtype="int32").tolist() == [[1, 2]]
    with pytest.raises(windrow.MisuseError, match="expected integers"):
        windrow.tensor([1.5], dtype="int32")
    with pytest.raises(windrow.MisuseError, match="expected integers"):
        windrow.tensor([float("nan")], dtype="int32")
    with pytest.raises(windrow.MisuseError, match="dtype 'float64'"):
        windrow.tensor([1.5], dtype="float64")


def test_set_replaces_the_elements():
    x = windrow.empty(2, 2)
    x.set([[1, 2], [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]]
    x[:, 1:].set([[7], [8]])
    assert x.tolist() == [[1, 7], [3, 8]]
    with pytest.raises(windrow.MisuseError, match="1 x 4; expected 2 x 2"):
        x.set([1, 2, 3, 4])


def test_full_and_item():
    assert windrow.full(2, 3, 1.5).tolist() == [[1.5] * 3] * 2
    assert windrow.full(1, 1, -3, dtype="int32").item() == -3
    with pytest.raises(windrow.MisuseError, match="expected one of int32"):
        windrow.full(1, 1, 0.5, dtype="int32")
    with pytest.raises(windrow.MisuseError, match="expected no negative size"):
        windrow.full(-1, 1, 0)
    with pytest.raises(windrow.MisuseError, match="2 x 3; expected 1 x 1"):
        windrow.full(2, 3, 0).item()


def test_views_share_the_elements():
    elements = np.arange(200.0 * 3).reshape(3, 200)
    x = windrow.tensor(elements)
    whole = slice(None)
    for key in [0, -1, slice(1, 3), (whole, slice(2, 150)), (1, slice(None, 5)), (2, 3), slice(5, 9), slice(2, 1)]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        rows = slice(rows, rows + 1 or None) if isinstance(rows, int) else rows
        columns = slice(columns, columns + 1 or None) if isinstance(columns, int) else columns
        assert np.array_equal(x[key].numpy(), elements[rows, columns])
    x[1].set(np.zeros((1, 200)))
    assert x.numpy()[1].sum() == 0
    assert [row.item() for row in windrow.tensor([[1.0], [2.0]])] == [1, 2]
    for key, error in [
        (3, IndexError),
        (-4, IndexError),
        ((0, 200), IndexError),
        ((0, 0, 0), IndexError),
        ("a", TypeError),
        (1.0, TypeError),
        (slice(None, None, 2), windrow.MisuseError),
    ]:
        with pytest.raises(error):
            x[key]


def test_repr_does_not_wait(engine):
    x = windrow.empty(2, 3, windrow.host(engine))
    go = threading.Event()
    engine.push(lambda: go.wait(), overwrite=x)
    assert repr(x) == "<windrow.Tensor 2 x 3, pending>"
    assert (x.rows, x.width, x.shape, len(x), x.ndim) == (2, 3, (2, 3), 2, 2)
    go.set()


def test_a_failed_op_is_raised_with_its_line():
    engine = windrow.Engine(workers=1)
    x = windrow.tensor([[1.0]], windrow.host(engine))

    def fail():
        raise KeyError("lost")

    engine.push(fail, mutate=x, name="broken")
    y = windrow.tanh(x)
    for read in [y.numpy, y.tolist, y.item, lambda: np.from_dlpack(y), lambda: np.asarray(y)]:
        with pytest.raises(windrow.OpError, match="broken") as raised:
            read()
        assert isinstance(raised.value.__cause__, KeyError)
    x.set([[2.0]])
    assert x.item() == 2
    engine.close()


def test_reading_what_no_op_has_written_fails():
    for read in [lambda x: x.numpy(), lambda x: np.from_dlpack(x), lambda x: windrow.tanh(x).numpy()]:
        with pytest.raises((windrow.MisuseError, windrow.OpError), match="before anything was written"):
            read(windrow.empty(1, 1))


def test_tensors_outlive_their_engine():
    engine = windrow.Engine(workers=1)
    x = windrow.tensor([[1.0, 2.0]], windrow.host(engine))
    device = windrow.host(engine)
    engine.close()
    assert repr(x) == "<windrow.Tensor 1 x 2>"
    uses = [x.numpy, lambda: windrow.tanh(x), lambda: x.set([[1, 2]]), lambda: x.device]
    for use in [*uses, lambda: windrow.empty(1, 1, device)]:
        with pytest.raises(windrow.MisuseError, match="engine"):
            use()
    del x, device, uses, use
    gc.collect()


def test_tensors_of_two_engines_do_not_mix(device):
    with pytest.raises(windrow.MisuseError):
        windrow.tensor([[1.0]], device) + windrow.tensor([[1.0]])


def test_one_host_for_an_engine(engine):
    assert windrow.host(engine) == windrow.host(engine)
    assert hash(windrow.host(engine)) == hash(windrow.host(engine))
    assert windrow.host(engine) != windrow.host()
    assert windrow.tensor([1.0], windrow.host(engine)).device == windrow.host(engine)


def test_serial_engine():
    with windrow.Engine("serial") as engine:
        x = windrow.tensor([[1.0, 2.0]], windrow.host(engine))
        assert (2 * x + 1).tolist() == [[3, 5]]


def test_threads_use_tensors_while_another_closes_the_engine():
    for _ in range(5):
        engine = windrow.Engine(workers=2)
        x = windrow.full(4, 4, 0.5, windrow.host(engine))
        began = threading.Barrier(3)

        def use():
            began.wait()
            try:
                while True:
                    windrow.tanh(x).numpy()
            except windrow.MisuseError:
                pass

        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads:
            thread.start()
        began.wait()
        engine.close()
        for thread in threads:
            thread.join()


def test_random_numbers():
    draws = windrow.Generator(seed=7)
    first, second = windrow.empty(100, 10), windrow.empty(100, 10)
    assert draws.uniform(first, -1, 1).shape == (100, 10)
    draws.normal(second, 3, 0.5)
    assert -1 <= first.numpy().min() < -0.9 and 0.9 < first.numpy().max() < 1
    assert abs(second.numpy().mean() - 3) < 0.1 and abs(second.numpy().std() - 0.5) < 0.05
    again = windrow.Draw(7, 1).normal(windrow.empty(100, 10), 3, 0.5)
    assert np.array_equal(again.numpy(), second.numpy())
    keys = draws.dropout_keys(windrow.empty(5, 3, dtype="int32"))
    dropped = windrow.dropout(windrow.full(5, 100, 1.0), keys, 0.5, seed=1).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    with pytest.raises(windrow.MisuseError):
        draws.uniform(first, 1, -1)

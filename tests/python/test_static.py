"""Static functions: recordings, replays, keys, errors, life."""

import gc
import weakref

import numpy as np
import pytest

import windrow


def test_replays_compute_the_same_bits():
    calls = []

    @windrow.static
    def program(x, y):
        """Computes."""
        calls.append(1)
        return windrow.tanh(x @ y) + 1

    random = np.random.default_rng(1)
    y = windrow.tensor(random.normal(size=(3, 4)))
    for _ in range(4):
        x = windrow.tensor(random.normal(size=(2, 3)))
        assert np.array_equal(program(x, y).numpy(), (windrow.tanh(x @ y) + 1).numpy())
    assert len(calls) == 1
    assert (program.stats().recorded, program.stats().replayed, program.stats().kept) == (1, 3, 1)
    program(windrow.tensor(random.normal(size=(5, 3))), y)
    assert len(calls) == 2
    assert (program.__name__, program.__doc__) == ("program", "Computes.")


@pytest.mark.parametrize("order", ["parallel", "serial", "breadth_first"])
def test_orders_and_several_results(order):
    program = windrow.static(order=order, most_recordings=2)(lambda x, i: (windrow.gather_rows(x, i), 2 * x))
    for k in range(3):
        x = windrow.tensor([[1.0 + k], [2.0]])
        rows, twice = program(x, windrow.tensor([[1], [0]]))
        assert rows.tolist() == [[2], [1 + k]]
        assert twice.tolist() == [[2 + 2 * k], [4]]


def test_the_order_of_arguments_matters():
    program = windrow.static(lambda *parts: parts[0] * 2 if isinstance(parts[0], windrow.Tensor) else parts[1] * 3)
    x, i = windrow.tensor([[1.0]]), windrow.tensor([[1]])
    assert [program(x, i).item(), program(i, x).item(), program(x, i).item()] == [2, 3, 2]


def test_keys_have_recordings_of_their_own():
    factor = 2
    program = windrow.static(lambda x: factor * x)
    x = windrow.tensor([[1.0]])
    assert program(x, key="two").item() == 2
    factor = 3
    assert program(x, key="two").item() == 2
    assert program(x, key="three").item() == 3


def test_a_training_step():
    w = windrow.tensor([[1.0], [1.0]])

    @windrow.static
    def step(x):
        with windrow.Tape() as tape:
            tape.watch(w)
            loss = windrow.column_sum(windrow.square(x @ w))
        tape.backward(loss)
        windrow.sgd(w, tape.gradient(w), 0.05)
        return loss

    losses = [step(windrow.tensor([[1.0, 2.0]])).item() for _ in range(5)]
    assert losses[0] == 9 and losses == sorted(losses, reverse=True)
    assert step.stats().replayed == 4


def test_a_function_without_result():
    total = windrow.full(1, 1, 0.0)
    add = windrow.static(lambda x: windrow.sgd(total, x, -1))
    for _ in range(3):
        assert add(windrow.tensor([[2.0]])) is None
    assert total.item() == 6


def test_draws_are_new_in_each_replay():
    random = windrow.Generator(3)
    program = windrow.static(lambda x: x + random.uniform(windrow.empty(1, 4)))
    x = windrow.full(1, 4, 0.0)
    first, second = program(x).numpy(), program(x).numpy()
    assert not np.array_equal(first, second)
    assert np.array_equal(second, windrow.Draw(3, 1).uniform(windrow.empty(1, 4)).numpy())


def test_errors_of_the_function_pass():
    def fail(x):
        raise KeyError("here")

    x = windrow.tensor([[1.0]])
    with pytest.raises(KeyError, match="here"):
        windrow.static(fail)(x)
    for program, error, text in [
        (lambda x: x.numpy(), windrow.MisuseError, "Static"),
        (lambda x: x.device and windrow.default_engine().push(print, read=x), windrow.MisuseError, "replayable"),
        (lambda x: 3, TypeError, "returns tensors"),
        (lambda x: (x * 1, 3), TypeError, "returns tensors"),
        (lambda x: windrow.tensor([1]), TypeError, "returns tensors"),
        (lambda x: x @ windrow.full(2, 2, 1.0), windrow.MisuseError, "matmul"),
    ]:
        with pytest.raises(error, match=text):
            windrow.static(program)(x)
    assert windrow.tanh(x).shape == (1, 1)


def test_misuse_of_static_functions():
    x = windrow.tensor([[1.0]])
    with pytest.raises(TypeError, match="expected tensors"):
        windrow.static(lambda x: x * 2)(3)
    with pytest.raises(TypeError):
        windrow.static(lambda x: x * 2)(x, key=[])
    with pytest.raises(windrow.MisuseError, match="order 'fast'"):
        windrow.static(lambda x: x * 2, order="fast")(x)
    several = iter([x * 2, (x * 2,)])
    program = windrow.static(lambda x: next(several))
    program(x, key=1)
    with pytest.raises(windrow.MisuseError, match="in another"):
        program(x, key=2)
    recursive = windrow.static(lambda x: recursive(x))
    with pytest.raises(windrow.MisuseError):
        recursive(x)


def test_cycles_through_the_function_are_collected():
    class Model:
        def __init__(self):
            self.w = windrow.tensor([[2.0]])
            self.program = windrow.static(lambda x: x * self.w)

    model = Model()
    assert model.program(windrow.tensor([[3.0]])).item() == 6
    ended = weakref.ref(model)
    del model
    gc.collect()
    assert ended() is None


def test_results_outlive_the_function():
    result = windrow.static(lambda x: x * 2)(windrow.tensor([[3.0]]))
    gc.collect()
    assert result.item() == 6


def test_keys_of_equal_hashes_have_recordings_of_their_own():
    factor = 0.0

    @windrow.static
    def times(x):
        return x * factor

    x = windrow.tensor([1.0, 2.0])
    for key in (-1, -2, 0, 2**61 - 1):
        factor = float(key % 7)
        assert times(x, key=key).tolist() == [[factor, 2 * factor]]
    assert times.stats().recorded == 4

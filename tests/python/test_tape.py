"""Tapes: what is watched, with blocks, threads, errors."""

import threading

import numpy as np
import pytest

import windrow


def total(x):
    return windrow.column_sum(windrow.row_sum(x))


def test_gradients_of_watched_tensors():
    x, w, other = windrow.tensor([[1.0, 2.0]]), windrow.tensor([[3.0], [4.0]]), windrow.tensor([[1.0]])
    with windrow.Tape() as tape:
        tape.watch(w, other)
        loss = windrow.square(x @ w)
    tape.backward(loss)
    assert tape.gradient(w).tolist() == [[22], [44]]
    assert tape.gradient(other) is None
    with pytest.raises(windrow.MisuseError):
        tape.gradient(x)


def test_backward_from_given_gradients():
    x = windrow.tensor([[1.0, 2.0]])
    with windrow.Tape() as tape:
        tape.watch(x)
        y, z = 3 * x, windrow.square(x)
    tape.backward_from([y, z], [windrow.tensor([[1.0, 0.0]]), None])
    assert tape.gradient(x).tolist() == [[3, 0]]


def test_operators_after_the_block_are_not_noted():
    x = windrow.tensor([[2.0]])
    with windrow.Tape() as tape:
        tape.watch(x)
        y = x * x
    z = y * y
    with pytest.raises(windrow.MisuseError):
        tape.backward(z)
    tape.backward(y)
    assert tape.gradient(x).item() == 4


def test_inner_tapes_may_end_first():
    x = windrow.tensor([[2.0]])
    with windrow.Tape() as outer:
        outer.watch(x)
        with windrow.Tape() as inner:
            inner.watch(x)
            y = x * x
        inner.backward(y)
        z = 3 * x
    outer.backward(z)
    assert (inner.gradient(x).item(), outer.gradient(x).item()) == (4, 3)


def test_tapes_of_other_threads_do_not_note():
    x = windrow.tensor([[2.0]])
    with windrow.Tape() as tape:
        tape.watch(x)
        results = []
        thread = threading.Thread(target=lambda: results.append(x * x))
        thread.start()
        thread.join()
    with pytest.raises(windrow.MisuseError):
        tape.backward(results[0])


def test_a_block_that_raises_ends():
    with pytest.raises(KeyError), windrow.Tape():
        raise KeyError
    x = windrow.tensor([[2.0]])
    assert (x * x).item() == 4


def test_misuse_of_tapes():
    x = windrow.tensor([[2.0, 3.0]])
    tape = windrow.Tape()
    with pytest.raises(windrow.MisuseError, match="did not begin"):
        tape.__exit__(None, None, None)
    with pytest.raises(windrow.MisuseError):
        tape.watch(x[:, :1])
    with pytest.raises(TypeError):
        tape.watch(3)
    tape.__enter__()
    tape.__exit__(None, None, None)
    with windrow.Tape() as tape:
        tape.watch(x)
        y = x * x
        with pytest.raises(windrow.MisuseError, match="slice"):
            y[:, :1] * 2
        z = windrow.slice(y, 0, 1)
        x.set([[1.0, 1.0]])
    with pytest.raises(windrow.MisuseError):
        tape.backward(z)


def test_a_lost_tape_in_its_block():
    x = windrow.tensor([[2.0]])
    done = []
    thread = threading.Thread(target=lambda: (windrow.Tape().__enter__(), done.append((x * x).item())))
    thread.start()
    thread.join()
    assert done == [4]
    assert (x * x).item() == 4


def test_descent_finds_the_weights():
    random = np.random.default_rng(1)
    inputs = random.normal(size=(64, 3))
    true = np.array([[1.0], [-2.0], [0.5]])
    x, y = windrow.tensor(inputs), windrow.tensor(inputs @ true + 3)
    w, b = windrow.full(3, 1, 0.0), windrow.full(1, 1, 0.0)
    for _ in range(200):
        with windrow.Tape() as tape:
            tape.watch(w, b)
            loss = total(windrow.square(x @ w + b - y)) / 64
        tape.backward(loss)
        for parameter in (w, b):
            windrow.sgd(parameter, tape.gradient(parameter), 0.1)
    np.testing.assert_allclose(w.numpy(), true, atol=1e-3)
    assert b.item() == pytest.approx(3, abs=1e-3)


def test_an_outer_tape_notes_the_operators_of_inner_blocks():
    x = windrow.tensor([3.0])
    with windrow.Tape() as outer:
        outer.watch(x)
        y = x * x
        with windrow.Tape() as inner:
            inner.watch(y)
            z = y * 2.0
        w = z + y
    outer.backward(w)
    assert outer.gradient(x).tolist() == [[18.0]]
    inner.backward(z)
    assert inner.gradient(y).tolist() == [[2.0]]


def test_gradients_are_not_differentiated_again():
    x, other = windrow.tensor([3.0]), windrow.tensor([2.0])
    with windrow.Tape() as outer:
        outer.watch(x)
        with windrow.Tape() as inner:
            inner.watch(x)
            y = x * x
        inner.backward(y)
        penalty = windrow.square(inner.gradient(x)) + x
    with pytest.raises(windrow.MisuseError, match="gradients are not differentiated again"):
        outer.backward(penalty)
    with windrow.Tape() as outer:
        outer.watch(x)
        with windrow.Tape() as inner:
            inner.watch(other)
            y = other * other
        inner.backward(y)
        z = inner.gradient(other) * x  # a constant for the outer tape
    outer.backward(z)
    assert outer.gradient(x).tolist() == [[4.0]]

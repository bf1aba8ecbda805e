"""Exchange with other libraries: DLPack, NumPy's arrays, edits, and the order of ops and views."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import windrow


def test_numpy_shares_the_memory_of_a_tensor():
    x = windrow.tensor(np.arange(192.0).reshape(3, 64))  # rows of 64 elements are padded: their stride is longer
    for view in [np.from_dlpack(x), np.asarray(x)]:
        assert view.shape == (3, 64) and view.flags.writeable
        assert np.array_equal(view, np.arange(192).reshape(3, 64))
        view[0, 0] = 5
        assert x[0, 0].item() == 5
        view[0, 0] = 0
    part = np.from_dlpack(x[1:, 2:4])
    assert np.array_equal(part, [[66, 67], [130, 131]])
    assert np.from_dlpack(windrow.tensor([1, 2])).dtype == np.int32


def test_numpy_copies():
    x = windrow.tensor([[1.0, 2.0]])
    copies = [x.numpy(), np.array(x), np.from_dlpack(x, copy=True), np.asarray(x, copy=True)]
    for copy in [*copies, np.asarray(x, dtype=np.float64)]:
        copy[0, 0] = 9
        assert x.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, dtype=np.float64, copy=False)


def test_tensor_shares_the_memory_of_an_array():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = windrow.from_dlpack(a)
    x.set([[6, 5, 4], [3, 2, 1]])
    assert x.tolist() == [[6, 5, 4], [3, 2, 1]]
    assert a.tolist() == [[6, 5, 4], [3, 2, 1]]
    part = windrow.from_dlpack(a[:, 1:])
    assert windrow.scale_shift(part, 2, 0).tolist() == [[10, 8], [4, 2]]
    part.set([[0, 0], [0, 0]])
    part.tolist()
    assert a.tolist() == [[6, 0, 0], [3, 0, 0]]
    integers = np.arange(3, dtype=np.int32)
    assert windrow.from_dlpack(integers).tolist() == [[0, 1, 2]]
    assert np.shares_memory(np.from_dlpack(windrow.from_dlpack(integers)), integers)


@pytest.mark.parametrize(
    "a",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.arange(6, dtype=np.float32)[::2],
        np.arange(6, dtype=np.float32)[::-1],
        np.broadcast_to(np.float32(1), (2, 3)),
        np.arange(3),
        np.zeros((0, 3), np.float32),
    ],
    ids=["float64", "transposed", "step", "reversed", "broadcast", "int64", "empty"],
)
def test_other_layouts_are_copied(a):
    x = windrow.from_dlpack(a)
    assert np.array_equal(x.numpy(), np.atleast_2d(a))
    with pytest.raises(BufferError, match="copy=False"):
        windrow.from_dlpack(a, copy=False)


def test_read_only_arrays_are_copied():
    a = np.ones((2, 2), np.float32)
    a.flags.writeable = False
    x = windrow.from_dlpack(a)
    x.set([[0, 0], [0, 0]])
    x.tolist()
    assert a.sum() == 4


def test_copy_true_copies():
    a = np.ones((2, 2), np.float32)
    x = windrow.from_dlpack(a, copy=True)
    a[:] = 2
    assert x.numpy().sum() == 4


class Producer:
    """An array of a library that supports DLPack 1.0 (versioned), or only older versions."""

    def __init__(self, of, versioned):
        self.of, self.versioned = of, versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError("unexpected keyword")
        return self.of.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [False, True])
def test_older_libraries_are_served(versioned):
    a = np.ones((2, 2), np.float32)
    assert windrow.from_dlpack(Producer(a, versioned)).numpy().sum() == 4
    x = windrow.tensor([[1.0, 2.0]])
    version = {"max_version": (1, 0)} if versioned else {}
    assert ("versioned" in repr(x.__dlpack__(**version))) == versioned
    assert np.from_dlpack(Producer(x, versioned)).tolist() == [[1, 2]]
    assert x.__dlpack_device__() == (1, 0)


class Failing:
    def __dlpack__(self, **options):
        raise BufferError("requires a gradient")


def test_errors_of_exchange():
    x = windrow.tensor([[1.0]])
    with pytest.raises(BufferError, match="requires a gradient"):
        windrow.from_dlpack(Failing())
    with pytest.raises(TypeError, match="expected an array with __dlpack__"):
        windrow.from_dlpack([1.0])
    with pytest.raises(BufferError, match="expected None"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="the host"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError):
        windrow.from_dlpack(np.ones(2, complex))
    with pytest.raises(windrow.MisuseError, match="3 dimensions"):
        windrow.from_dlpack(np.ones((1, 2, 3), np.float32))


def test_memory_of_an_array_lives_until_the_last_op(engine):
    a = np.full((2, 2), 3, np.float32)
    ended = weakref.ref(a)
    go = threading.Event()
    x = windrow.from_dlpack(a, device=windrow.host(engine))
    engine.push(lambda: go.wait(), mutate=x)
    y = windrow.scale_shift(x, 1, 1)
    del a, x
    gc.collect()
    assert ended() is not None
    go.set()
    assert y.tolist() == [[4, 4], [4, 4]]
    engine.wait_all()
    assert ended() is None


def test_views_outlive_tensor_and_engine():
    engine = windrow.Engine(workers=1)
    views = []
    for view in [np.from_dlpack, np.asarray, lambda x: x.numpy(), lambda x: x.__dlpack__()]:
        x = windrow.tensor(np.full((100, 100), 7.0), windrow.host(engine))
        views.append(view(x))
    wrapped = windrow.from_dlpack(np.full((3, 3), 1, np.float32), device=windrow.host(engine))
    del x
    engine.close()
    del engine
    gc.collect()
    assert all(view.sum() == 70000 for view in views[:3])
    del wrapped, views
    gc.collect()


def test_views_end_on_other_threads():
    view = np.from_dlpack(windrow.full(10, 10, 1.0))
    holder = [view]
    del view
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()


def test_views_at_the_end_of_the_program():
    program = """
import numpy as np, windrow
x = windrow.tensor([[1.0]])
a = np.from_dlpack(x)
y = windrow.from_dlpack(np.ones((2, 2), np.float32))
z = y + 1
capsule = x.__dlpack__()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_edit_waits_for_readers_and_writers(engine):
    device = windrow.host(engine)
    x = windrow.tensor([[1.0, 2.0]], device)
    go = threading.Event()
    engine.push(lambda: go.wait(), read=x)
    threading.Timer(0.02, go.set).start()
    with x.edit() as a:
        assert go.is_set()
        a[:] = [[3, 4]]
    assert x.tolist() == [[3, 4]]
    assert not a.flags.writeable
    with windrow.empty(2, 2, device).edit() as a:
        assert a.tolist() == [[0, 0], [0, 0]]
    edit = x.edit()
    with edit, pytest.raises(windrow.MisuseError, match="entered again"):
        edit.__enter__()


def test_ops_view_what_they_declare_without_waiting(engine):
    device = windrow.host(engine)
    x, y = windrow.tensor([[1.0, 2.0]], device), windrow.empty(1, 2, device)

    def double():
        with y.edit() as to:
            np.multiply(np.from_dlpack(x), 2, out=to)
        assert not np.from_dlpack(x).flags.writeable
        assert x.tolist() == [[1, 2]]
        assert x.numpy().sum() == 3

    engine.push(double, read=x, overwrite=y)
    assert y.tolist() == [[2, 4]]

    def write():
        np.from_dlpack(x)[:] = 5
        np.asarray(x)[0, 0] = 6

    engine.push(write, mutate=x)
    assert x.tolist() == [[6, 5]]


def test_ops_that_only_read_cannot_edit():
    engine = windrow.Engine(workers=1)
    x, y = windrow.tensor([[1.0]], windrow.host(engine)), engine.var()

    def write():
        with x.edit():
            pass

    engine.push(write, read=x, overwrite=y)
    with pytest.raises(windrow.OpError, match="only reads"):
        engine.wait(y)
    engine.close()


def test_view_of_an_undeclared_tensor_in_an_op_waits(engine):
    x, y = windrow.tensor([[1.0]], windrow.host(engine)), windrow.empty(1, 1, windrow.host(engine))
    seen = []
    engine.push(lambda: seen.append(np.from_dlpack(x)[0, 0]), overwrite=y)
    engine.wait_all()
    assert seen == [1]

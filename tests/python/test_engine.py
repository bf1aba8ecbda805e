"""Engines: orders, accesses, waits, graphs, cancellation, traces. What ends programs is in test_engine_life.py."""

import asyncio
import json
import pathlib
import random
import threading
import time
import warnings

import pytest

import windrow

POLICIES = ["pool", "serial", "per_device", "chaos"]


@pytest.fixture(params=POLICIES)
def any_engine(request):
    with windrow.Engine(request.param, workers=2) as made:
        yield made
        made.wait_all()


class Gate:
    """An op that runs until it is opened."""

    def __init__(self, engine, **accesses):
        self._open = threading.Event()
        self.begun = threading.Event()
        engine.push(self._wait, name="gate", **accesses)

    def _wait(self):
        self.begun.set()
        assert self._open.wait(30)

    def open(self):
        self._open.set()


# ---- order ----


def test_ops_on_a_variable_run_in_the_order_of_their_pushes(any_engine):
    x = any_engine.var("x")
    ran = []
    for i in range(200):
        any_engine.push(lambda i=i: ran.append(i), mutate=x)
    any_engine.wait(x)
    assert ran == list(range(200))


@pytest.mark.parametrize("seed", range(4))
def test_the_result_is_that_of_the_serial_order(any_engine, seed):
    """Random ops on six cells, against the same program without an engine."""
    choose = random.Random(seed)
    variables = [any_engine.var(f"v{i}") for i in range(6)]
    cells, expected = [0] * 6, [0] * 6

    def op(values, reads, writes, step, keep):
        total = step + sum(values[i] for i in reads)
        for i in writes:
            values[i] = (values[i] * keep + total) % 1000003

    for step in range(150):
        order = choose.sample(range(6), 6)
        reads, writes = order[: choose.randrange(3)], order[4 : 4 + choose.randrange(1, 3)]
        keep = choose.randrange(2)
        accesses = {"mutate" if keep else "overwrite": [variables[i] for i in writes]}
        any_engine.push(
            lambda args=(reads, writes, step, keep): op(cells, *args), read=[variables[i] for i in reads], **accesses
        )
        op(expected, reads, writes, step, keep)
    any_engine.wait(*variables)
    assert cells == expected


def test_readers_run_at_the_same_time_and_writers_wait_for_them():
    with windrow.Engine(workers=2) as engine:
        x = engine.var("x")
        both = threading.Barrier(2)
        ran = []
        for _ in range(2):
            engine.push(lambda: both.wait(30), read=x)
        engine.push(lambda: ran.append("writer"), overwrite=x)
        engine.wait(mutate=x)
        assert ran == ["writer"]


def test_ops_that_commute_run_one_at_a_time(any_engine):
    x = any_engine.var("x")
    inside, most, total = 0, 0, 0

    def add():
        nonlocal inside, most, total
        inside += 1
        most = max(most, inside)
        total += 1
        time.sleep(0.0002)
        inside -= 1

    for _ in range(30):
        any_engine.push(add, commute=x)
    any_engine.wait(x)
    assert (most, total) == (1, 30)


@pytest.mark.parametrize("form", ["one", "list", "tuple", "generator", "nested", "object"])
def test_accesses_take_many_forms(engine, form):
    x, y = engine.var("x"), engine.var("y")

    class HasVar:
        def __init__(self, var):
            self.var = var

    ran = []
    forms = {
        "one": x,
        "list": [x, y],
        "tuple": (x, y),
        "generator": (v for v in (x, y)),
        "nested": [x, [y], None],
        "object": [HasVar(x), HasVar(y)],
    }
    gate = Gate(engine, mutate=x)
    engine.push(lambda: ran.append(1), read=forms[form])
    assert not engine.wait(mutate=x, timeout=0.01)
    gate.open()
    engine.wait(mutate=x)
    assert ran == [1]


def test_ready_ops_of_higher_priority_run_first():
    with windrow.Engine(workers=1) as engine:
        x = engine.var()
        gate = Gate(engine, overwrite=x)
        ran = []
        for priority in (0, 5, -3, 9):
            engine.push(lambda p=priority: ran.append(p), read=x, priority=priority)
        gate.open()
        engine.wait_all()
        assert ran == [9, 5, 0, -3]


def test_many_threads_push(any_engine):
    x = any_engine.var("x")
    counts = {}

    def push(thread):
        for i in range(300):
            any_engine.push(lambda i=i: counts.setdefault(thread, []).append(i), mutate=x)

    threads = [threading.Thread(target=push, args=(t,)) for t in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    any_engine.wait(x)
    assert counts == {t: list(range(300)) for t in range(6)}


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_that_push_too_far_ahead_are_held_back(policy):
    """Held threads give up the GIL, since the ops that they wait for need it."""
    with windrow.Engine(policy, workers=2, max_pending_ops=8, push_patience=20) as engine:
        x, ran, most = engine.var(), [], [0]

        def push():
            for _ in range(200):
                engine.push(lambda: ran.append(None), commute=x)
                most[0] = max(most[0], engine.stats().pending)

        threads = [threading.Thread(target=push) for _ in range(4)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.wait_all()
        assert len(ran) == 800
        assert most[0] < 60
        assert time.monotonic() - begun < 15


def test_a_push_inside_an_op_of_a_serial_engine_gives_up_the_gil_when_it_is_held_back():
    with windrow.Engine("serial") as outer, windrow.Engine(workers=1, max_pending_ops=4, push_patience=20) as inner:
        ran = []

        def push():
            for _ in range(50):
                inner.push(lambda: ran.append(None))

        begun = time.monotonic()
        outer.push(push)
        inner.wait_all()
        assert len(ran) == 50
        assert time.monotonic() - begun < 10


# ---- waits ----


def test_a_wait_with_a_timeout_returns_false(engine):
    x = engine.var()
    gate = Gate(engine, mutate=x)
    begun = time.monotonic()
    assert engine.wait(x, timeout=0.03) is False
    assert engine.wait_all(timeout=0.03) is False
    assert engine.wait(x, timeout=0) is False
    assert 0.05 < time.monotonic() - begun < 5
    gate.open()
    assert engine.wait(x, timeout=30) is True
    assert engine.wait_all(timeout=30) is True
    assert engine.wait() is True


def test_a_wait_does_not_wait_for_what_is_pushed_meanwhile(engine):
    x = engine.var()
    gate = Gate(engine, mutate=x)
    later = []
    done = threading.Event()

    def push_more():
        gate.begun.wait(30)
        time.sleep(0.15)  # longer than the time between two looks for signals
        later.append(Gate(engine, mutate=x))
        gate.open()
        done.wait(30)
        later[0].open()

    thread = threading.Thread(target=push_more)
    thread.start()
    assert engine.wait(x, timeout=20)
    assert not later[0]._open.is_set()
    done.set()
    thread.join()


def test_a_wait_for_writes_waits_for_readers_too(engine):
    x = engine.var()
    gate = Gate(engine, read=x)
    assert engine.wait(x, timeout=30)
    assert not engine.wait(mutate=x, timeout=0.01)
    gate.open()
    assert engine.wait(mutate=x, timeout=30)


def test_ops_wait_for_ops_that_they_push(any_engine):
    def fibonacci(n, result):
        if n < 2:
            result.append(n)
            return
        parts, x = ([], []), any_engine.var()
        for back, part in enumerate(parts):
            any_engine.push(lambda back=back, part=part: fibonacci(n - 1 - back, part), commute=x)
        any_engine.wait(x)
        any_engine.retire(x)
        result.append(parts[0][0] + parts[1][0])

    result, x = [], any_engine.var()
    any_engine.push(lambda: fibonacci(7, result), mutate=x)
    any_engine.wait(x)
    assert result == [13]


def test_a_wait_that_could_never_end_says_so(any_engine):
    x = any_engine.var("x")
    any_engine.push(lambda: any_engine.wait(mutate=x), mutate=x, name="waits for itself")
    with pytest.raises(windrow.OpError) as raised:
        any_engine.wait(x)
    assert isinstance(raised.value.__cause__, windrow.WaitCycleError)
    assert "waits for itself" in str(raised.value)
    any_engine.heal(x)


def test_wait_all_inside_an_op_is_refused(any_engine):
    x = any_engine.var()
    any_engine.push(any_engine.wait_all, mutate=x)
    with pytest.raises(windrow.OpError, match="would wait for that op itself") as raised:
        any_engine.wait(x)
    assert isinstance(raised.value.__cause__, windrow.MisuseError)
    any_engine.heal(x)


def test_await_ready(any_engine):
    x, y = any_engine.var("x"), any_engine.var("y")

    async def use(count):
        values = []
        for i in range(count):
            any_engine.push(lambda i=i: values.append(i), mutate=x)
            await any_engine.ready(x, y)
            assert values[-1] == i
        any_engine.push(lambda: 1 // 0, overwrite=y, name="divides")
        with pytest.raises(windrow.OpError, match="divides") as raised:
            await any_engine.ready([y])
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        any_engine.push(lambda: None, overwrite=y)  # which heals
        await asyncio.gather(*(any_engine.ready(y) for _ in range(5)))
        return values

    assert asyncio.run(use(20)) == list(range(20))


def test_an_event_loop_runs_other_tasks_while_one_awaits(engine):
    async def use():
        x = engine.var()
        gate = Gate(engine, overwrite=x)
        waits = asyncio.create_task(engine.ready(x))
        given_up = asyncio.create_task(engine.ready(x))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(given_up, 0.02)
        assert not waits.done()
        gate.open()
        await asyncio.wait_for(waits, 30)

    asyncio.run(use())


def test_an_event_loop_may_end_before_what_it_awaits(engine):
    x = engine.var()
    gate = Gate(engine, overwrite=x)

    async def begin():
        asyncio.ensure_future(engine.ready(x))
        await asyncio.sleep(0)

    asyncio.run(begin())
    gate.open()
    engine.wait_all()


# ---- graphs ----


def test_a_graph_runs_at_each_launch(any_engine):
    x, ran = any_engine.var(), []
    graph = any_engine.capture(
        lambda: [any_engine.push(lambda i=i: ran.append(i), mutate=x, name=f"op{i}") for i in range(3)], name="three"
    )
    assert ran == [] and len(graph) == 3
    for _ in range(4):
        graph.launch()
    any_engine.wait(x)
    assert ran == [0, 1, 2] * 4
    graph.append(lambda: any_engine.push(lambda: ran.append("last"), mutate=x))
    graph.launch()
    any_engine.wait(x)
    assert ran[-4:] == [0, 1, 2, "last"]
    assert "digraph" in graph.dot() and "op1" in graph.dot()


def test_a_capture_that_raises_keeps_nothing(engine):
    def body():
        engine.push(lambda: None)
        raise KeyError("in the body")

    with pytest.raises(KeyError, match="in the body"):
        engine.capture(body)
    graph = engine.capture(lambda: None)
    with pytest.raises(KeyError):
        graph.append(body)
    assert len(graph) == 0
    with pytest.raises(windrow.MisuseError, match="inside a capture"):
        engine.capture(engine.wait)


def test_errors_of_graphs_name_the_line_of_the_push(engine):
    x = engine.var()
    graph = engine.capture(lambda: engine.push(lambda: [][0], mutate=x, name="indexes"))
    graph.launch()
    with pytest.raises(windrow.OpError, match=r"op 'indexes' .*test_engine\.py:\d+.*IndexError") as raised:
        engine.wait(x)
    assert isinstance(raised.value.__cause__, IndexError)
    engine.heal(x)


# ---- cancellation ----


def test_stop_cancels_ops_that_have_not_begun(engine):
    x, y, stop, ran = engine.var("x"), engine.var("y"), windrow.Stop(), []
    gate = Gate(engine, overwrite=x)
    engine.push(lambda: ran.append("stopped"), read=x, mutate=y, stop=stop)
    engine.push(lambda: ran.append("skipped"), mutate=y)
    engine.push(lambda: ran.append("always"), mutate=y, stop=stop, run_always=True)
    assert not stop.requested
    stop.request()
    assert stop.requested
    gate.open()
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(y)
    assert isinstance(raised.value.__cause__, windrow.Cancelled)
    assert [failure.kind for failure in raised.value.failures] == ["cancelled"]
    assert ran == ["always"]
    assert engine.stats().cancelled == 1
    engine.heal(y)


def test_an_op_may_raise_cancelled(engine):
    def gives_up():
        raise windrow.Cancelled("enough")

    x = engine.var()
    engine.push(gives_up, overwrite=x)
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(x)
    assert isinstance(raised.value.__cause__, windrow.Cancelled) and "was cancelled: enough" in str(raised.value)
    assert raised.value.failures[0].kind == "cancelled" and engine.stats().cancelled == 1
    engine.heal(raised.value)


def test_an_op_whose_deadline_passes_fails(engine):
    x, y, ran = engine.var(), engine.var(), []
    gate = Gate(engine, overwrite=x)
    engine.push(lambda: ran.append(1), read=x, overwrite=y, deadline=0.01)
    engine.push(lambda: ran.append(2), read=x, deadline=100)
    time.sleep(0.03)
    gate.open()
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(y)
    assert isinstance(raised.value.__cause__, windrow.DeadlineError)
    assert isinstance(raised.value.__cause__, TimeoutError)
    engine.wait(mutate=x)
    assert ran == [2]
    engine.heal(y)


# ---- inspection ----


def test_describe_pending_names_ops_lines_and_variables(engine):
    x = engine.var("the variable")
    gate = Gate(engine, overwrite=x)
    gate.begun.wait(30)
    engine.push(lambda: None, read=x, name="waits")
    text = engine.describe_pending()
    assert "gate" in text and "waits" in text and "the variable" in text and "test_engine.py" in text
    gate.open()


def test_traces_are_saved_and_summed_up(engine, tmp_path):
    x = engine.var("x")
    path = tmp_path / "trace.json"
    with engine.trace(str(path)) as trace:
        for _ in range(3):
            engine.push(lambda: time.sleep(0.001), mutate=x, name="sleeps")
        engine.wait(x)
    events = json.loads(path.read_text())
    assert "sleeps" in json.dumps(events)
    assert "sleeps" in trace.summary() and "3" in trace.summary()
    trace.save(str(tmp_path / "again.json"))
    assert pathlib.Path(tmp_path / "again.json").exists()


def test_statistics_and_versions(engine):
    x = engine.var()
    before = engine.version(x)
    for _ in range(5):
        engine.push(lambda: None, mutate=x)
    engine.push(lambda: None, read=x)
    engine.wait_all()
    stats = engine.stats()
    assert engine.version(x) == before + 5
    assert (stats.pushed, stats.pending, stats.failed) == (6, 0, 0)
    assert engine.workers == 2


def test_variables_are_values(engine):
    x, y = engine.var("x"), engine.var("y")
    assert x == x and x != y and x != 1 and not x == "x" and x is not None
    assert len({x, y, x}) == 2 and bool(x)


# ---- ends ----


def test_a_block_that_ends_while_ops_are_pending_warns():
    with pytest.warns(RuntimeWarning, match="1 ops were pending") as warned:
        with windrow.Engine(workers=1) as engine:
            engine.push(lambda: time.sleep(0.1))
    assert warned[0].filename == __file__
    assert engine.closed


def test_a_block_that_ends_after_a_wait_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with windrow.Engine() as engine:
            engine.push(lambda: None)
            engine.wait_all()
        engine.close()
        with pytest.raises(KeyError):
            with windrow.Engine() as engine:
                engine.push(lambda: time.sleep(0.05))
                raise KeyError


def test_an_engine_that_nobody_closes_warns():
    engine = windrow.Engine(workers=1)
    kept = [windrow._windrow.Engine.close.__get__(engine)]
    with pytest.warns(ResourceWarning, match="not closed"):
        engine.__del__()
    kept[0]()


def test_closed_engines_refuse_calls():
    engine = windrow.Engine(workers=1)
    x = engine.var()
    graph = engine.capture(lambda: engine.push(lambda: None, mutate=x))
    assert "1 workers" in repr(engine)
    engine.close()
    assert "closed" in repr(engine)
    for call in (
        lambda: engine.push(lambda: None),
        lambda: engine.wait(x),
        engine.wait_all,
        engine.var,
        engine.stats,
        engine.describe_pending,
        lambda: engine.capture(lambda: None),
        lambda: engine.version(x),
        lambda: asyncio.run(engine.ready(x)),
        graph.launch,
        graph.dot,
    ):
        with pytest.raises(windrow.MisuseError):
            call()


def test_an_op_may_use_an_engine_of_its_own(engine):
    result = []

    def op():
        with windrow.Engine(workers=1) as own:
            x = own.var()
            own.push(lambda: result.append(1), mutate=x)
            own.wait(x)

    engine.push(op)
    engine.wait_all()
    assert result == [1]


def test_an_op_cannot_close_its_engine(engine):
    x = engine.var()
    engine.push(engine.close, overwrite=x)
    with pytest.raises(windrow.OpError, match="inside an op of this engine"):
        engine.wait(x)
    engine.heal(x)


def test_failures_that_nobody_waited_for_are_logged(capfd):
    with windrow.Engine(workers=1) as engine:
        x, y = engine.var(), engine.var()
        engine.push(lambda: {}["seen"], overwrite=x, name="seen")
        engine.push(lambda: {}["unseen"], overwrite=y, name="unseen")
        with pytest.raises(windrow.OpError):
            engine.wait(x)
        while engine.stats().pending:
            time.sleep(0.001)
    told = capfd.readouterr().err
    assert "nobody waited" in told and "op 'unseen'" in told and "op 'seen'" not in told

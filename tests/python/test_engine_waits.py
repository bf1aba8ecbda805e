"""Engines: waits, in threads, inside ops and in coroutines."""

import asyncio
import threading
import time

import pytest
from beginnings import Gate

import windrow


def test_a_wait_with_a_timeout_returns_false(engine):
    x = engine.var()
    gate = Gate(engine, mutate=x)
    begun = time.monotonic()
    assert engine.wait(x, timeout=0.03) is False
    assert engine.wait_all(timeout=0.03) is False
    assert engine.wait(x, timeout=0) is False
    assert 0.05 < time.monotonic() - begun < 25
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

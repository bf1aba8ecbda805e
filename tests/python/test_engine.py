"""Engines: the order of ops, accesses, threads that push. Start here."""

import random
import threading
import time

import pytest
from beginnings import Gate

import windrow

POLICIES = ["pool", "serial", "per_device", "chaos"]


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
    """Held threads release the GIL, since the ops that they wait for need it."""
    with windrow.Engine(policy, workers=2, max_pending_ops=8, push_patience=60) as engine:
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
        assert time.monotonic() - begun < 30


def test_a_push_inside_an_op_of_a_serial_engine_gives_up_the_gil_when_it_is_held_back():
    with windrow.Engine("serial") as outer, windrow.Engine(workers=1, max_pending_ops=4, push_patience=60) as inner:
        ran = []

        def push():
            for _ in range(50):
                inner.push(lambda: ran.append(None))

        begun = time.monotonic()
        outer.push(push)
        inner.wait_all()
        assert len(ran) == 50
        assert time.monotonic() - begun < 30

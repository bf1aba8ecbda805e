"""Interrupts: a signal ends each call that waits, and what the call used works afterwards."""

import pytest

START = """
import os, signal, sys, threading, time, windrow

go = threading.Event()  # releases the op on which the calls wait

def interrupted(call):
    begun = time.monotonic()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        call()
    except KeyboardInterrupt:
        took = time.monotonic() - begun
        assert 0.15 < took < 3, took
    else:
        sys.exit("not interrupted")
"""

MODEL = (
    START
    + """
engine = windrow.Engine(workers=3)
device = windrow.host(engine)
parameters = windrow.Parameters(device)
w = parameters.add("w", 1, 1, 2.0)

@windrow.vertex_function()
def function(v):
    y = v.pull("x", 1) @ w
    v.push("y", y)
    v.loss(y)

runner = windrow.Runner(function, parameters)
graphs = windrow.Graphs.from_lists(function, [{"children": [[]], "x": [3.0]}])
lazy = windrow.LazyGraph(parameters)

def hang():
    go.clear()
    engine.push(lambda: go.wait(20), mutate=w.value)

def train(steps=100):
    for _ in range(steps):
        runner.differentiate(graphs)
        parameters.sgd(0.0)

def works():
    go.set()
    engine.wait_all()
    train(5)
    assert runner.run(graphs).output("y").item() == 6
    lazy.clear()
    assert (lazy.input([3.0]) @ w).scalar() == 6
    engine.wait_all()

async def task():
    await windrow.value(lazy.input([3.0]) @ w)

def backward():
    loss = lazy.input([3.0]) @ w
    loss.value()
    hang()
    lazy.backward(loss)
"""
)


def test_an_interrupt_ends_each_call_that_waits_for_parameters(run_python):
    run_python(
        MODEL
        + """
for call in [
    train,
    lambda: runner.differentiate(graphs).loss(),
    lambda: runner.run(graphs).output("y").numpy(),
    lambda: (lazy.input([1.0]) @ w).value(),
    lambda: (lazy.input([1.0]) @ w).scalar(),
    lambda: lazy.run([task()]),
    lambda: windrow.Snapshot(parameters),
    lambda: parameters.replica(windrow.host_devices(2, engine)[1]),
    lambda: w.value.tolist(),
    lambda: windrow.tensor(w.value),
    lambda: windrow.Graphs.from_arrays(function, [0, 1], [0, 0], [], x=w.value),
    lambda: lazy.input(w.value),
    lambda: engine.wait_all(),
    lambda: engine.wait(w.value, timeout=20),
]:
    hang()
    interrupted(call)
    works()
interrupted(backward)
works()
engine.close()
"""
    )


def test_a_value_that_was_interrupted_can_be_read_again(run_python):
    run_python(
        MODEL
        + """
y = lazy.input([3.0]) @ w
hang()
for _ in range(2):
    interrupted(y.value)
go.set()
assert y.value() == [6] and lazy.stats().flushes == 1
works()
"""
    )


def test_a_thread_that_waits_for_its_turn(run_python):
    run_python(
        MODEL
        + """
hang()
other = threading.Thread(target=train, args=[20])
other.start()
time.sleep(0.3)
interrupted(lambda: parameters.sgd(0.1))
interrupted(lambda: runner.differentiate(graphs))
go.set()
other.join()
works()
"""
    )


@pytest.mark.parametrize("policy", ["pool", "serial", "per_device", "chaos"])
def test_a_push_that_is_held_back(run_python, policy):
    run_python(
        START
        + f"""
engine = windrow.Engine({policy!r}, workers=2, max_pending_ops=4)
x, begun, ran = engine.var(), threading.Event(), []

def hang():
    begun.set()
    go.wait(20)

threading.Thread(target=lambda: engine.push(hang, mutate=x)).start()
assert begun.wait(20)

def push():
    while True:
        engine.push(lambda: ran.append(1), mutate=x)
        pushed.append(1)

pushed = []
interrupted(push)
assert not ran
go.set()
engine.wait(x)
# A serial engine holds a thread back after its push.
assert len(ran) - len(pushed) == (1 if {policy!r} == "serial" else 0)
engine.push(lambda: ran.append("last"), mutate=x)
engine.close()
assert ran[-1] == "last"
"""
    )


def test_an_op_that_runs_in_the_programs_thread(run_python):
    run_python(
        START
        + """
engine = windrow.Engine("serial")
x = engine.var("x")
interrupted(lambda: engine.push(lambda: time.sleep(20), overwrite=x))
try:
    engine.wait(x)
except windrow.OpError as error:
    assert isinstance(error.__cause__, KeyboardInterrupt)
else:
    raise AssertionError("the op did not fail")
engine.close()
"""
    )


def test_steps_are_whole(run_python):
    """A call that pushes several ops is held back, and an interrupt comes only after it."""
    run_python(
        START
        + """
engine = windrow.Engine(workers=2, max_pending_ops=4, push_patience=1)
parameters = windrow.Parameters(windrow.host(engine))
all_w = [parameters.add(f"w{i}", 1, 1, 0.0) for i in range(20)]

@windrow.vertex_function()
def function(v):
    y = v.pull("x", 1)
    for w in all_w:
        v.loss(y @ w)

runner = windrow.Runner(function, parameters)
graphs = windrow.Graphs.from_lists(function, [{"children": [[]], "x": [1.0]}])
runner.differentiate(graphs).loss()
engine.push(lambda: go.wait(3), mutate=all_w[0].value)

def step():
    parameters.sgd(1.0)
    time.sleep(1)

threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    step()
except KeyboardInterrupt:
    pass
go.set()
assert {w.value.item() for w in all_w} == {-1.0}
"""
    )


def test_a_member_that_waits_for_others(run_python):
    run_python(
        START
        + """
engine = windrow.Engine(workers=2)
devices = windrow.host_devices(2, engine)

def members(group):
    for rank in range(2):
        parameters = windrow.Parameters(devices[rank])
        parameters.add("w", 1, 1)
        yield lambda group=group, rank=rank, parameters=parameters: windrow.DataParallel(group[rank], parameters)

group = windrow.LocalGroup(devices)
first, second = members(group)
interrupted(first)
for member in first, second:  # the group is broken, and says why
    try:
        member()
        sys.exit("no error")
    except windrow.CommError as error:
        assert "rank 0 has left a wait" in str(error), error
group = windrow.LocalGroup(devices)
first, second = members(group)
thread = threading.Thread(target=first)
thread.start()
second()
thread.join()
interrupted(group[0].barrier)
"""
    )


def test_handlers_may_raise_and_use_the_engine(run_python):
    told = run_python(
        MODEL
        + """
class Raised(Exception):
    pass

def handle(*_):
    y = engine.var()
    engine.push(lambda: print("handled", flush=True), mutate=y)
    engine.wait(y)
    try:
        parameters.sgd(0.1)  # another call uses them
    except windrow.MisuseError:
        raise Raised("of a handler")

signal.signal(signal.SIGINT, handle)
hang()
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    train()
except Raised as error:
    print(error)
works()
"""
    )
    assert told == "handled\nof a handler\n"


def test_a_training_stops_after_a_step(run_python):
    run_python(
        START
        + """
trainer = windrow.Trainer(windrow.make_model("tree-lstm", samples=600, hidden=16), minibatch=4)
done = []
def train():
    while True:
        trainer.train_epoch(lambda so_far: done.append(trainer.minibatches))
interrupted(train)
before = trainer.minibatches
assert before - len(done) <= before // 150 + 1  # all but the last of each epoch, and the one after which it came
trainer.train_epoch()
"""
    )


def test_a_hanging_step_of_a_training(run_python):
    run_python(
        START
        + """
model = windrow.make_model("tree-lstm", samples=600, hidden=16)
trainer = windrow.Trainer(model, minibatch=4)
engine = windrow.default_engine()
engine.push(lambda: go.wait(20), mutate=model.parameters["inner"].value)
threading.Timer(2.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    trainer.train_epoch()
    sys.exit("not interrupted")
except KeyboardInterrupt:
    print(time.monotonic() - begun)
go.set()
try:
    while True: time.sleep(0.01) if time.monotonic() < begun + 3.2 else sys.exit()
except KeyboardInterrupt:
    pass
trainer.train_epoch()
"""
    )

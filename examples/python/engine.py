"""Functions as ops: the engine orders them by the variables that they use. Errors, and how to continue after them."""

import asyncio

import windrow

engine = windrow.default_engine()  # the engine of tensors and parameters that are made without a device
numbers: dict[str, int] = {}


def load(name: str, text: str) -> None:
    numbers[name] = int(text)


def add() -> None:
    numbers["total"] = numbers["x"] + numbers["y"]


x, y, total = engine.var("x"), engine.var("y"), engine.var("total")
engine.push(lambda: load("x", "40"), overwrite=x, name="load x")  # these two may run
engine.push(lambda: load("y", "2"), overwrite=y, name="load y")  # at the same time
engine.push(add, read=[x, y], overwrite=total, name="add")
engine.wait(total)
print("total =", numbers["total"])


async def later() -> None:
    engine.push(add, read=[x, y], overwrite=total, name="add")
    await engine.ready(total)  # asyncio runs other tasks meanwhile


asyncio.run(later())  # in a notebook: await later()

engine.push(lambda: load("y", "two"), overwrite=y, name="load y")
engine.push(add, read=[x, y], overwrite=total, name="add")  # skipped, since it needs y
try:
    engine.wait_all()
except windrow.OpError as error:
    print(error)
    print("because of", repr(error.__cause__))
    engine.heal(error)  # y and total are as they were before the failed ops

parameters = windrow.Parameters(seed=1)
w = parameters.add("w", 1, 1, 1.0)


@windrow.vertex_function()
def logarithm(v: windrow.Vertex) -> None:
    v.loss(windrow.square(windrow.log(v.pull("x") @ w)))


runner, optimiser = windrow.Runner(logarithm, parameters), windrow.Adam(parameters, 0.1)
for value in (2.0, -1.0, 2.0):  # the logarithm of -1 is NaN
    sample = windrow.Graphs.from_lists(logarithm, [{"children": [[]], "x": [value]}])
    minibatch = runner.differentiate(sample)
    optimiser.step(1)
    try:
        engine.wait_all()
        print(f"x = {value}: loss {minibatch.loss():.3f}, w = {w.value.item():.3f}")
    except windrow.OpError as error:
        print(f"x = {value}: {error.__cause__}")
        engine.heal(error)  # the step was skipped, so w is as before

"""An op receives nothing and says what it uses: the engine runs it when that is ready."""

import windrow

numbers: dict[str, int] = {}


def load(name: str, value: int) -> None:
    numbers[name] = value


with windrow.Engine() as engine:
    x, y, total = engine.var("x"), engine.var("y"), engine.var("total")
    engine.push(lambda: load("x", 40), overwrite=x, name="load x")  # these two may run
    engine.push(lambda: load("y", 2), overwrite=y, name="load y")  # at the same time
    engine.push(lambda: load("total", numbers["x"] + numbers["y"]), read=[x, y], overwrite=total, name="add")
    engine.wait(total)
    print("total =", numbers["total"])

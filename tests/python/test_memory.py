"""What many steps of tensors, batching and training leave in memory. The number of steps is WINDROW_STEPS."""

import gc
import os
import sys
import weakref

import numpy
import pytest

import windrow

STEPS = int(os.environ.get("WINDROW_STEPS", 2000))


class Tensors:
    """Operators, gradients, exchanges with NumPy, and a replayed step."""

    def __init__(self):
        self.weight = windrow.full(4, 4, 0.1)
        self.array = numpy.ones((2, 4), numpy.float32)
        self.twice = windrow.static(lambda x: x + x)

    def step(self):
        x = windrow.from_dlpack(self.array)
        with windrow.Tape() as tape:
            tape.watch(self.weight)
            loss = windrow.column_sum(windrow.row_sum(windrow.tanh(x @ self.weight)))
        tape.backward(loss)
        windrow.sgd(self.weight, tape.gradient(self.weight), 1e-3)
        numpy.from_dlpack(self.twice(loss))
        with pytest.raises(windrow.MisuseError):
            self.weight @ windrow.full(3, 3, 1.0)
        with self.weight.edit() as view:
            view[0, 0] = 0.1


class Training:
    """Graphs from arrays, a runner, an optimiser."""

    def __init__(self):
        self.parameters = windrow.Parameters(seed=1)
        words, inner = self.parameters.add("words", 10, 4), self.parameters.add("inner", 8, 4)

        @windrow.vertex_function(arity=2)
        def cell(v):
            h = v.state("h", 4)
            own = windrow.tanh(
                windrow.embedding(words, v.pull_index("word", optional=True))
                + windrow.concat([v.gather(0, h), v.gather(1, h)]) @ inner
            )
            v.scatter(h, own)
            v.push("h", own)
            v.loss(windrow.softmax_cross_entropy(own, v.pull_index("label")))

        self.cell = cell
        self.runner = windrow.Runner(cell, self.parameters)
        self.optimiser = windrow.Adam(self.parameters, 1e-3)
        self.count = 0

    def step(self):
        self.count += 1
        words = [self.count % 10, 3, -1]
        graphs = windrow.Graphs.from_arrays(self.cell, [0, 3], [0, 0, 0, 2], [0, 1], word=words, label=[1, 2, 3])
        minibatch = self.runner.differentiate(graphs)
        self.optimiser.step(len(graphs))
        minibatch.loss()
        minibatch.at_roots("h").numpy()
        with pytest.raises(windrow.MisuseError):
            windrow.Graphs.from_arrays(self.cell, [0, 1], [0, 0], [], word=[10**6], label=[1])


class Lazy:
    """Expressions, and samples that wait for values."""

    def __init__(self):
        self.parameters = windrow.Parameters(seed=1)
        self.table, self.weight = self.parameters.add("table", 10, 4), self.parameters.add("weight", 4, 4)
        self.graph = windrow.LazyGraph(self.parameters)

        @windrow.cell
        def layer(cell):
            cell.result(windrow.tanh(cell.operand(4) @ self.weight))

        self.layer = layer

    async def sample(self, word):
        state = self.layer(windrow.embedding(self.table, self.graph.index(word)))
        values = await windrow.value(state)
        return windrow.softmax_cross_entropy(state, self.graph.index(values.index(max(values))))

    def step(self):
        self.graph.backward(self.graph.run(self.sample(word) for word in range(3)))
        self.parameters.sgd(0.01)
        with pytest.raises(windrow.MisuseError):
            self.graph.zeros(3) @ self.weight
        self.graph.clear()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("part", [Tensors, Training, Lazy])
def test_memory_stays_the_same_over_many_steps(part):
    measured = part()

    def steps(count):
        for _ in range(count):
            measured.step()
        windrow.default_engine().wait_all()
        gc.collect()

    steps(STEPS // 2)
    bytes_before, blocks_before = resident_bytes(), sys.getallocatedblocks()
    steps(STEPS)
    assert sys.getallocatedblocks() - blocks_before < 200
    assert resident_bytes() - bytes_before < 4 << 20


@pytest.mark.parametrize("part", [Tensors, Training, Lazy])
def test_a_program_s_objects_are_released(part):
    reference = weakref.ref(released := part())
    released.step()
    del released
    gc.collect()
    assert reference() is None

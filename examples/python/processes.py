"""Processes train one model on different samples; MPI sums their gradients.

mpirun -n 2 python processes.py    # or alone: python processes.py

If a program uses mpi4py, too, it must import mpi4py before it makes an MpiWorld.
"""

import random
import sys

import windrow

try:
    world = windrow.MpiWorld()
except windrow.MisuseError as error:
    print(f"skipped: {error}")
    sys.exit(5)

parameters = windrow.Parameters(seed=1)
w = parameters.add("w", 4, 1)


@windrow.vertex_function()
def linear(v: windrow.Vertex) -> None:
    v.loss(windrow.squared_distance(v.pull("x", 4) @ w, v.pull("y", 1)))


draw = random.Random(world.rank)  # y = x_0 - x_1 + x_2 - x_3
xs = [[draw.uniform(-1, 1) for _ in range(4)] for _ in range(64)]
samples = [{"children": [[]], "x": [x], "y": [x[0] - x[1] + x[2] - x[3]]} for x in xs]
graphs = windrow.Graphs.from_lists(linear, samples)

runner = windrow.Runner(linear, parameters)
optimiser = windrow.Adam(parameters, 0.05)
parallel = windrow.DataParallel(world.group(), parameters)  # all begin with the parameters of rank 0
for step in range(201):
    runner.differentiate(graphs)
    optimiser.step(parallel.combine(len(graphs)))  # along the gradient of all processes' samples

if world.rank == 0:
    print(f"w[0] = {w.value.tolist()[0][0]:.2f} in {world.size} processes")

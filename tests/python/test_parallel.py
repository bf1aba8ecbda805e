"""Groups of devices and of processes, and data-parallel training. The tests of processes are skipped if there
is no mpirun, no MPI in the build, or no mpi4py."""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import windrow
from windrow import CommError, MisuseError, OpError

from test_runner import TreeLstm, graphs_of, random_samples, values_of

SAMPLES = random_samples(40, seed=5)


class WithDropout(TreeLstm):
    """Draws dropout for each sample, which must not depend on the device."""

    def cell(self, v):
        n = self.hidden
        h = v.state("h", n)
        word = windrow.embedding(self.words, v.pull_index("word", optional=True))
        below = windrow.concat([v.gather(0, h), v.gather(1, h)])
        own = windrow.tanh(word @ self.leaf + below @ self.inner + self.bias)[:n]
        v.scatter(h, own)
        v.loss(windrow.softmax_cross_entropy(windrow.dropout(own, 0.3) @ self.head, v.pull_index("label")))


def adam(parameters):
    return windrow.Adam(parameters, 0.02, clip_norm=1)


def trained_alone(kind, epochs=2):
    """The losses of the steps, and the values after them."""
    model = kind()
    runner, optimiser = windrow.Runner(model.function, model.parameters), adam(model.parameters)
    losses = []
    for epoch in range(epochs):
        for minibatch in graphs_of(model, SAMPLES).minibatches(16, shuffle=epoch):
            losses.append(runner.differentiate(minibatch).loss())
            optimiser.step(len(minibatch))
    return losses, values_of(model.parameters)


@pytest.mark.parametrize("kind", [TreeLstm, WithDropout])
@pytest.mark.parametrize("devices, sharded", [(1, False), (2, False), (3, False), (2, True)])
def test_replicas_take_the_steps_of_one_device(kind, devices, sharded):
    losses, values = trained_alone(kind)
    on = windrow.host_devices(devices)
    model = kind(on[0])
    replicas = windrow.Replicas(model.function, model.parameters, on, adam, sharded=sharded)
    found = []
    for epoch in range(2):
        for minibatch in graphs_of(model, SAMPLES).minibatches(16, shuffle=epoch):
            parts = replicas.step(minibatch)
            assert sum(part.vertices for part in parts) == minibatch.vertices
            found.append(sum(part.loss() for part in parts))
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    of_each = [values_of(parameters) for parameters in replicas.parameters]
    for name, value in values.items():
        np.testing.assert_allclose(of_each[0][name], value, atol=1e-5)
        assert all(np.array_equal(other[name], of_each[0][name]) for other in of_each)
    assert replicas.parameters[0] is model.parameters and [o.steps for o in replicas.optimisers] == [6] * devices


def test_replicas_refuse_what_does_not_fit_and_go_on():
    devices = windrow.host_devices(2)
    model, other = TreeLstm(devices[0]), TreeLstm()
    replicas = windrow.Replicas(model.function, model.parameters, devices, adam)
    before = values_of(model.parameters)
    with pytest.raises(MisuseError, match="sample 0: a graph of another vertex function"):
        replicas.step(graphs_of(other, SAMPLES[:4]))
    with pytest.raises(MisuseError, match="no graphs; expected at least 1"):
        replicas.step([])
    assert all(np.array_equal(value, before[name]) for name, value in values_of(model.parameters).items())
    assert sum(part.loss() for part in replicas.step(graphs_of(model, SAMPLES[:1]))) > 0
    for call, text in [
        (lambda: windrow.Replicas(other.function, other.parameters, devices, adam), "expected on the first device"),
        (lambda: windrow.Replicas(model.function, model.parameters, [], adam), "expected on the first device"),
        (
            lambda: windrow.Replicas(model.function, model.parameters, devices, lambda _: adam(other.parameters)),
            "an opt",
        ),
    ]:
        with pytest.raises(MisuseError, match=text):
            call()
    with pytest.raises(TypeError, match="what `optimiser` makes"):
        windrow.Replicas(model.function, model.parameters, devices, lambda own: None)


def test_a_replica_has_the_values_and_serves_the_function():
    model = TreeLstm()
    model.head.frozen = True
    replica = model.parameters.replica(windrow.host_devices(1)[0])
    assert type(replica) is windrow.Parameters and replica.names() == model.parameters.names()
    assert replica["head"].frozen and not replica["leaf"].frozen
    losses = [
        windrow.Runner(model.function, parameters).differentiate(graphs_of(model, SAMPLES)).loss()
        for parameters in (model.parameters, replica)
    ]
    assert losses[0] == losses[1]
    replica.sgd(0.1)
    assert not np.array_equal(replica["leaf"].value.tolist(), model.leaf.value.tolist())
    late = model.parameters.add("late", 1, 1)

    @windrow.vertex_function()
    def uses_late(v):
        v.loss(v.pull("x", 1) @ late)

    windrow.Runner(uses_late, model.parameters)
    with pytest.raises(MisuseError, match="'late' of another set"):
        windrow.Runner(uses_late, replica)
    with pytest.raises(MisuseError, match="given twice"):
        windrow.Runner(model.function, [model.parameters, replica])


def at_each(group, body):
    """Calls body(communicator) in a thread for each member, and returns the results, or raises the first exception."""
    results, errors = [None] * len(group), []

    def run(rank):
        try:
            results[rank] = body(group[rank])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(group))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_collectives_combine_the_tensors_of_all_members():
    group = windrow.LocalGroup(windrow.host_devices(3), patience=30)

    def body(member):
        x = windrow.tensor([[member.rank + 1.0, 2.0]], member.device)
        y, z = (
            windrow.tensor([[float(member.rank)]], member.device),
            windrow.tensor([[5.0 * member.rank]], member.device),
        )
        member.all_reduce([x, y])
        member.all_reduce(z, "max")
        all_of = member.all_gather(windrow.tensor([[float(member.rank)]], member.device))
        root = windrow.tensor([[float(member.rank)]], member.device)
        member.broadcast(root, 2)
        numbers = member.exchange([member.rank, 7])
        member.barrier()
        return [x.tolist(), y.tolist(), z.tolist(), all_of.tolist(), root.tolist(), numbers]

    expected = [[[6, 6]], [[3]], [[10]], [[0], [1], [2]], [[2]], [0, 7, 1, 7, 2, 7]]
    assert at_each(group, body) == [expected] * 3
    assert repr(group[1]) == "<windrow.Communicator, rank 1 of 3, on cpu:1>"
    for call, kind in [
        (lambda: group[3], IndexError),
        (lambda: group[0].all_reduce(windrow.tensor([[1.0]]), "product"), MisuseError),
        (lambda: group[0].all_reduce(1), TypeError),
        (lambda: group[0].broadcast(windrow.tensor([[1.0]]), 3), MisuseError),
        (lambda: windrow.host_devices(0), MisuseError),
        (lambda: windrow.LocalGroup([]), MisuseError),
        (lambda: windrow.LocalGroup(windrow.host_devices(1), patience=0), MisuseError),
    ]:
        with pytest.raises(kind):
            call()


def test_members_in_threads_train_as_one_does():
    losses, values = trained_alone(TreeLstm, epochs=1)
    group = windrow.LocalGroup(windrow.host_devices(2), patience=30)

    def body(member):
        model = TreeLstm(member.device, seed=1 + member.rank)  # rank 0 gives the others its parameters
        runner, optimiser = windrow.Runner(model.function, model.parameters), adam(model.parameters)
        parallel = windrow.DataParallel(member, model.parameters)
        for minibatch in graphs_of(model, SAMPLES).minibatches(16, shuffle=0):
            own = minibatch[member.rank :: 2]
            runner.differentiate(own)
            samples = parallel.combine(len(own))
            assert samples == len(minibatch)
            optimiser.step(samples)
        return values_of(model.parameters)

    first, second = at_each(group, body)
    for name, value in values.items():
        np.testing.assert_allclose(first[name], value, atol=1e-5)
        assert np.array_equal(first[name], second[name])


def test_a_group_that_breaks_raises_at_all_members():
    group = windrow.LocalGroup(windrow.host_devices(2), patience=0.2)
    x = windrow.tensor([[1.0]], group[0].device)
    group[0].all_reduce(x)
    with pytest.raises(OpError) as caught:
        x.tolist()
    assert isinstance(caught.value.__cause__, CommError) and "rank 1" in str(caught.value.__cause__)
    with pytest.raises(CommError):
        group[1].exchange([1])
    group = windrow.LocalGroup(windrow.host_devices(2))
    group[0].abort("had enough")
    with pytest.raises(windrow.AbortError, match="had enough"):
        group[1].exchange([1])


MPIRUN = shutil.which("mpirun")
OF_PROCESSES = {  # containers may refuse what Open MPI tries by default
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
{before}
import windrow
from test_parallel import SAMPLES, TreeLstm, adam, graphs_of, values_of

world = windrow.MpiWorld({communicator})
model = TreeLstm(seed=1 + world.rank)
runner, optimiser = windrow.Runner(model.function, model.parameters), adam(model.parameters)
parallel = windrow.DataParallel(world.group(), model.parameters)
for minibatch in graphs_of(model, SAMPLES).minibatches(16, shuffle=0):
    own = minibatch[world.rank :: world.size]
    runner.differentiate(own)
    optimiser.step(parallel.combine(len(own)))
{after}
if world.rank == 0:
    print(world.size, sorted((name, value.tolist()) for name, value in values_of(model.parameters).items()))
"""


@pytest.fixture(scope="module")
def mpirun():
    """The program, where processes can use MPI."""
    if MPIRUN is None:
        pytest.skip("there is no mpirun")
    code = "import windrow; windrow.MpiWorld()"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | OF_PROCESSES, capture_output=True, text=True)
    if "MPI cannot be used" in done.stderr:
        pytest.skip("the build has no MPI")
    return MPIRUN


@pytest.fixture
def run_processes(mpirun, run_python):
    """Runs the program above in two processes."""

    def run(before="", communicator="", after="", **how):
        code = PROGRAM.format(tests=__file__.rpartition("/")[0], before=before, communicator=communicator, after=after)
        return run_python(code, before=[mpirun, "-n", "2"], timeout=60, **OF_PROCESSES, **how)

    return run


WITH_MPI4PY = pytest.param(
    "from mpi4py import MPI",
    "",
    "assert MPI.COMM_WORLD.allreduce(1) == 2",
    marks=pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
)
WITH_COMMUNICATOR = pytest.param(
    "from mpi4py import MPI",
    "MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank)",
    "assert world.rank == 1 - MPI.COMM_WORLD.rank; world.close()",
    marks=WITH_MPI4PY.marks,
)


@pytest.mark.parametrize(
    "before, communicator, after",
    [("", "", ""), WITH_MPI4PY, WITH_COMMUNICATOR],
    ids=["alone", "mpi4py", "communicator"],
)
def test_processes_train_as_one_does(run_processes, before, communicator, after):
    size, _, values = run_processes(before, communicator, after).partition(" ")
    _, expected = trained_alone(TreeLstm, epochs=1)
    assert size == "2"
    for name, value in eval(values):
        np.testing.assert_allclose(value, expected[name], atol=1e-5)


def test_a_process_that_raises_ends_the_others(run_processes):
    after = "if world.rank == 1: raise ValueError('no more')\nparallel.combine(1)"
    run_processes(after=after, status=1, stderr="windrow.AbortError: exchange: rank 1: ValueError: no more")


def test_a_process_that_ends_early_is_named(run_processes):
    after = "if world.rank == 0: parallel.combine(1)"
    run_processes(after=after, status=1, stderr="windrow.CommError: exchange: rank 1 has ended without this call")


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_mpi_with_too_few_threads_is_refused(mpirun, run_python):
    code = """
    import mpi4py
    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI
    import windrow
    try:
        windrow.MpiWorld()
    except windrow.MisuseError as error:
        print(error)
    """
    assert "less than MPI_THREAD_MULTIPLE" in run_python(code, **OF_PROCESSES)

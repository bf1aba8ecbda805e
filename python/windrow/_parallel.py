"""Data-parallel training across MPI processes, and across the devices of one process."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING, Any, Callable, Sequence

from . import _windrow
from ._checks import require
from ._errors import MisuseError

if TYPE_CHECKING:
    from ._optimisers import Optimiser
    from ._parameters import Parameters
    from ._windrow import Communicator, Device, InputGraph, Minibatch, VertexFunction


def _end_mpi() -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    _windrow._end_mpi(None if error is None else f"{type(error).__name__}: {error}")


atexit.register(_end_mpi)  # runs after the engines have ended


class MpiWorld(_windrow.MpiWorld):
    """MPI in this process, for programs that ``mpirun`` starts. Without mpirun, the world has one member.

    >>> world = windrow.MpiWorld()
    >>> parallel = windrow.DataParallel(world.group(), parameters)
    >>> runner.differentiate(graphs[world.rank :: world.size])
    >>> optimiser.step(parallel.combine(len(graphs[world.rank :: world.size])))

    Args:
        communicator: a communicator of mpi4py whose processes are the world; all processes if None.
        patience: seconds after which a group breaks if a process is missing, and a call of MPI counts as hung.

    A program that uses mpi4py must import it first: then mpi4py starts MPI, with support for threads, and ends it.
    Otherwise this object starts MPI, and a process can make only one such object. All processes make it at the same
    time. It ends at close(), or at the end of the program. If an exception ends the program, the other processes get an
    AbortError that names the exception.

    Raises MisuseError if there is no MPI library or plug-in, and if MPI was started with fewer threads than
    MPI.THREAD_MULTIPLE; CommError if MPI fails.
    """

    __slots__ = ()

    def __init__(self, communicator: Any = None, *, patience: float = 600.0) -> None:
        address = None
        if communicator is not None:
            from mpi4py import MPI

            address = MPI._addressof(communicator)
        super().__init__(address, patience)

    def close(self) -> None:
        """Ends MPI, if this object has started it, after all calls of this process; waits for the other processes."""
        super().close()

    def __repr__(self) -> str:
        return f"<windrow.MpiWorld, rank {self.rank} of {self.size}>"


class DataParallel(_windrow.DataParallel):
    """Makes the members of a group train equal parameters on different samples. See MpiWorld and Replicas.

    >>> parallel = windrow.DataParallel(communicator, parameters)  # all begin with the parameters of rank 0
    >>> runner.differentiate(samples_of_this_member)
    >>> optimiser.step(parallel.combine(number_of_samples))  # along the gradient of all members' samples

    Ops sum the gradients, while the backward pass continues in the layers below. All members construct a DataParallel
    at the same time, with the same options.

    Args:
        communicator: this member of the group; its device is that of the parameters.
        parameters: those of this member. No two parameters may share memory.
        sharded: an optimiser to shard: each member takes the steps of some parameters, and keeps only their states.
        bucket_bytes: gradients are summed in groups of about this many bytes.
        part_bytes: the bytes of the parts in which sums are sent, a multiple of 4; 0: in one part.
        bfloat16: sends gradients rounded to 16 bits; what rounding removes is added to the next gradient.

    Raises MisuseError for options that exclude each other and for parameters of another device, CommError if members
    differ in parameters or options.
    """

    __slots__ = ("_about",)

    def __init__(
        self,
        communicator: Communicator,
        parameters: Parameters,
        *,
        sharded: Optimiser | None = None,
        bucket_bytes: int = 4 << 20,
        part_bytes: int = 1 << 20,
        bfloat16: bool = False,
    ) -> None:
        super().__init__(
            communicator,
            parameters,
            sharded=sharded,
            bucket_bytes=bucket_bytes,
            part_bytes=part_bytes,
            bfloat16=bfloat16,
        )
        self._about = f"<windrow.DataParallel of {parameters!r}, rank {communicator.rank} of {communicator.size}>"

    def __repr__(self) -> str:
        return self._about


class Replicas(_windrow.Replicas):
    """Trains a vertex function on several devices of this process, with one call per step.

    >>> devices = windrow.host_devices(2)
    >>> parameters = windrow.Parameters(devices[0], seed=1)
    >>> ...  # the vertex function `cell` uses them
    >>> replicas = windrow.Replicas(cell, parameters, devices, lambda own: windrow.Adam(own, 1e-3, clip_norm=5))
    >>> for minibatch in graphs.minibatches(64, shuffle=epoch):
    ...     parts = replicas.step(minibatch)
    >>> sum(part.loss() for part in parts)  # waits

    A step equals a step on a single device up to rounding, also with dropout.

    Args:
        function: the vertex function, which uses `parameters` only.
        parameters: the set of the first device. All others get replicas of it.
        devices: the devices that compute.
        optimiser: makes the optimiser of a set; called for each device.
        sharded: whether each device takes the steps of some parameters, and keeps only their states.
        bucket_bytes: gradients are summed in groups of about this many bytes.

    Attributes:
        parameters: the set of each device. All have equal values, so a checkpoint needs only the first one.
        optimisers: the optimiser of each device; likewise. To continue from a checkpoint, restore all.
    """

    __slots__ = ("parameters", "optimisers")

    def __init__(
        self,
        function: VertexFunction,
        parameters: Parameters,
        devices: Sequence[Device],
        optimiser: Callable[[Parameters], Optimiser],
        *,
        sharded: bool = False,
        bucket_bytes: int = 4 << 20,
    ) -> None:
        if not devices or devices[0] != parameters.device:
            raise MisuseError(f"Replicas: parameters on {parameters.device.name}; expected on the first device")
        self.parameters: list[Parameters] = [parameters, *(parameters.replica(device) for device in devices[1:])]
        self.optimisers: list[Optimiser] = [optimiser(own) for own in self.parameters]
        for made in self.optimisers:
            require(made, _windrow.Optimiser, "Replicas: what `optimiser` makes", "an Optimiser of its argument")
        super().__init__(function, self.parameters, self.optimisers, sharded=sharded, bucket_bytes=bucket_bytes)

    def step(self, graphs: _windrow.Graphs | Sequence[InputGraph]) -> list[Minibatch]:
        """Takes a step along the gradient of all graphs, divided by their number. Pushes ops and returns.

        The graphs are distributed over the devices by their numbers of vertices. Returns the minibatch of each device;
        the loss is the sum of their losses. Raises MisuseError for no graphs, and as Runner.differentiate() does; then
        no parameter has changed. After any other error, the replicas can no longer be used.
        """
        return super().step(graphs)

    def __repr__(self) -> str:
        return f"<windrow.Replicas on {', '.join(own.device.name for own in self.parameters)}>"

"""Data-parallel training: by processes of MPI, and by devices of one process."""

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
    """MPI in this process, for programs that ``mpirun`` starts. Without it, the world has one member.

    >>> world = windrow.MpiWorld()
    >>> parallel = windrow.DataParallel(world.group(), parameters)
    >>> runner.differentiate(graphs[world.rank :: world.size])
    >>> optimiser.step(parallel.combine(len(graphs[world.rank :: world.size])))

    Args:
        communicator: a communicator of mpi4py whose processes are the world; all processes if None.
        patience: after how many seconds without a missing process a group breaks, and a call of MPI counts as hung.

    A program that uses mpi4py imports it first: then mpi4py starts MPI, with all its threads, and ends it. Otherwise
    this object starts MPI, and a process can have only one. All processes make it at the same time. It ends with
    close(), or with the program; if an exception has ended the program, the other processes get an AbortError that
    names it.

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

    Gradients are summed as ops, while the backward pass goes on below them. All members construct it at the same time,
    with the same options.

    Args:
        communicator: this member of the group; its device is that of the parameters.
        parameters: those of this member. They must not share memory.
        sharded: the optimiser, if each member shall keep the states of some parameters only, and take their steps.
        bucket_bytes: gradients are summed in groups of about so many bytes.
        part_bytes: sums move in parts of so many bytes, a multiple of 4; 0: in one part.
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
    """Trains a vertex function on several devices of this process, in one call a step.

    >>> devices = windrow.host_devices(2)
    >>> parameters = windrow.Parameters(devices[0], seed=1)
    >>> ...  # the vertex function `cell` uses them
    >>> replicas = windrow.Replicas(cell, parameters, devices, lambda own: windrow.Adam(own, 1e-3, clip_norm=5))
    >>> for minibatch in graphs.minibatches(64, shuffle=epoch):
    ...     parts = replicas.step(minibatch)
    >>> sum(part.loss() for part in parts)  # waits

    A step equals one on a single device, up to rounding, with dropout, too.

    Args:
        function: the vertex function, which uses `parameters` only.
        parameters: the set of the first device. All others get replicas of it.
        devices: where to compute.
        optimiser: makes the optimiser of a set; called for each device.
        sharded: each device keeps the optimiser's states of some parameters only, and takes their steps.
        bucket_bytes: gradients are summed in groups of about so many bytes.

    Attributes:
        parameters: the set of each device; all have equal values, so the first one is that of a checkpoint.
        optimisers: likewise. To continue from a checkpoint, restore all.
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

        The graphs are distributed over the devices by their vertices. Returns the minibatch of each device: the loss is
        the sum of theirs. Raises MisuseError for no graphs, and as Runner.differentiate() does; no parameter has
        changed then. After another error the replicas cannot be used any more.
        """
        return super().step(graphs)

    def __repr__(self) -> str:
        return f"<windrow.Replicas on {', '.join(own.device.name for own in self.parameters)}>"

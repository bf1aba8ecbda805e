"""The exceptions of this package. All of them are windrow.Error."""

from __future__ import annotations

from typing import Any, NamedTuple


class Error(Exception):
    """The base class of all exceptions that windrow defines."""


class MisuseError(Error, ValueError):
    """A call that breaks a rule of the interface. The call has changed nothing."""


class WaitCycleError(MisuseError):
    """A wait inside an op that could never end, because the ops that it waits for wait for that op."""


class Cancelled(Error):
    """The error of an op that was cancelled before it ran. An op's function may raise it, too."""


class DeadlineError(Error, TimeoutError):
    """The error of an op that had not finished when its deadline passed."""


class OutOfMemory(Error, MemoryError):
    """An allocation that does not fit into the memory of its device."""


class FileError(Error, OSError):
    """A file that is missing, cannot be written, or does not contain what it should."""


class DataError(Error, ValueError):
    """Malformed data in a file or text: the text says where, what is wrong, and what was expected."""


class NotFiniteError(Error, ArithmeticError):
    """A loss that is infinite or NaN. The text names the vertex that it comes from."""


class CommError(Error):
    """A collective that failed, or a group that is broken. The text names the members that are missing."""


class PeerError(CommError):
    """A CommError that another member reports to the user, so this one need not be printed."""


class AbortError(PeerError):
    """Raised at all members after one has called Communicator.abort()."""


class Failure(NamedTuple):
    """Why an op failed."""

    op: str
    """The name of the op."""
    place: str
    """The line that pushed it: 'train.py:12'."""
    kind: str
    """'threw', 'waited', 'skipped', 'lost', 'lane' or 'cancelled'."""
    text: str
    """One line: the op, its line, and the chain of causes."""


class OpError(Error):
    """Raised by each wait for a variable whose op has failed, until the variable is overwritten or healed.

    If a Python function raised the original exception, that exception is the cause (``__cause__``), with its traceback.
    """

    failures: list[Failure]
    """The failures, at least one."""

    def __init__(self, text: str, failures: list[Failure] | None = None) -> None:
        super().__init__(text)
        self.failures = failures or []

    def __reduce__(self) -> tuple[Any, ...]:
        return OpError, (str(self), self.failures)


for _name in [name for name, value in globals().items() if isinstance(value, type) and value.__module__ == __name__]:
    globals()[_name].__module__ = "windrow"  # as users know it

"""Types of arguments and results, which the stub of the extension module imports. Nothing imports it at run time."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Literal,
    Protocol,
    Sequence,
    SupportsFloat,
    SupportsIndex,
    TypedDict,
    TypeVar,
)

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from typing_extensions import Buffer, TypeAlias

    from . import _windrow

T = TypeVar("T")


class HasDlpack(Protocol):
    """An array that exchanges memory by DLPack."""

    def __dlpack__(self) -> Any: ...


class HasArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class HasArray(Protocol):
    def __array__(self) -> Any: ...


class HasVar(Protocol):
    """A tensor, a minibatch, or another object that a variable stands for."""

    @property
    def var(self) -> _windrow.Var: ...


class HasNumbers(Protocol):
    """A dict, or a Vocabulary."""

    def __getitem__(self, name: Any, /) -> int: ...


class SkippedSteps(TypedDict):
    """See Parameters.skipped_steps()."""

    count: int
    last: list[tuple[int, str]]


Slice: TypeAlias = "slice"
"""Python's class; the extension module has a function named slice."""

Array: TypeAlias = "HasDlpack | HasArrayInterface | HasArray"
"""An array of some library: of NumPy, PyTorch, JAX and others, or a windrow.Tensor."""

Number: TypeAlias = "SupportsFloat | SupportsIndex"

ArrayLike: TypeAlias = "Array | Buffer | Number | Sequence[Number] | Sequence[Sequence[Number]]"
"""An array, a number, a list of numbers, or a list of rows."""

FloatArray: TypeAlias = "NDArray[numpy.floating[Any]] | _windrow.Tensor"
IntArray: TypeAlias = "NDArray[numpy.integer[Any] | numpy.bool_] | _windrow.IntTensor"

Floats: TypeAlias = "float | Sequence[float] | Sequence[Sequence[float]]"
Integers: TypeAlias = "IntArray | int | Sequence[int] | Sequence[Sequence[int]]"
"""Data that become an IntTensor unless dtype says otherwise."""

Given: TypeAlias = "ArrayLike | tuple[ArrayLike, ArrayLike]"
"""A tensor that vertices pull, alone or with the row that each vertex pulls."""

_OneAccess: TypeAlias = "_windrow.Var | HasVar | None"

Access: TypeAlias = "_OneAccess | Iterable[_OneAccess | Iterable[_OneAccess]]"
"""What an op accesses: variables, tensors, and lists of them."""

_Range: TypeAlias = "SupportsIndex | Slice"

Part: TypeAlias = "_Range | tuple[_Range] | tuple[_Range, _Range]"
"""Rows of a tensor, or rows and columns."""

Numbers: TypeAlias = "HasNumbers | Callable[[Any], int]"
"""Maps words or labels to numbers."""

Initial: TypeAlias = (
    "_windrow.Initialiser | float | Literal['glorot', 'he_normal', 'he_uniform', 'orthogonal', 'identity', 'zeros']"
)
"""Initial values of a parameter; see windrow.init."""

Policy: TypeAlias = Literal["level", "depth", "agenda", "complete", "serial"]
"""How schedules divide a graph into batches; see make_schedule()."""

"""Static functions: programs of tensors that are recorded once and replayed from then on."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Generic, Hashable, TypeVar, cast, overload

from . import _windrow
from ._windrow import Device, IntTensor, StaticStats, Tensor

R = TypeVar("R", bound="Tensor | tuple[Tensor, ...] | None")


_MOST_KEYS = 10_000


class Static(Generic[R]):
    """A function of tensors whose operators are recorded in the first call, and replayed in later ones.

    Made by ``@windrow.static``. Replays cost much less than calls of operators, and their tensors share planned memory.

    The function takes tensors and returns a tensor of floats, a tuple of them, or None. It may apply operators, make,
    fill and set tensors, draw random numbers, and use a Tape. It must not wait, such as by ``x.numpy()``, and must not
    push Python functions: these raise MisuseError. Everything else that it does happens only in the first call for each
    combination of shapes: its numbers become constants, so put changing numbers in tensors. Tensors that the function
    uses without receiving them as arguments are accessed in place. The next call overwrites the returned tensors:
    copy() those that are to last. One thread at a time.
    """

    def __init__(
        self,
        function: Callable[..., R],
        device: Device | None = None,
        *,
        order: str = "parallel",
        most_recordings: int = 8,
        name: str | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        title = name or str(getattr(function, "__name__", "static"))
        self._make: Callable[[Device | None], _windrow._Static] = lambda on: _windrow._Static(
            on, function, order, most_recordings, title
        )
        self._device = device
        self._program: _windrow._Static | None = None
        self._numbers: dict[Hashable, int] = {}
        self._count = itertools.count()

    def __call__(self, *tensors: Tensor | IntTensor, key: Hashable = 0) -> R:
        """Runs the function, or replays what it did with tensors of these shapes and with an equal ``key``.

        ``key`` stands for everything else on which the function depends.
        """
        if self._program is None:
            first = tensors[0] if tensors else None
            on = self._device or (first.device if isinstance(first, (Tensor, IntTensor)) else None)
            self._program = self._make(on)
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= _MOST_KEYS:
                self._numbers.clear()  # their recordings are not found again, and are dropped as the oldest ones
            number = self._numbers[key] = next(self._count)
        return cast("R", self._program(tensors, number))

    def __repr__(self) -> str:
        return f"<windrow.Static '{getattr(self, '__name__', 'static')}'>"

    def stats(self) -> StaticStats | None:
        """Counters; None before the first call."""
        return None if self._program is None else self._program.stats()


@overload
def static(function: Callable[..., R]) -> Static[R]: ...
@overload
def static(
    *, device: Device | None = None, order: str = "parallel", most_recordings: int = 8, name: str | None = None
) -> Callable[[Callable[..., R]], Static[R]]: ...
def static(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Makes a Static of a function: ``@windrow.static``, or with options, ``@windrow.static(order="serial")``.

    ``order`` is how a replay runs the operators: "parallel", "serial" or "breadth_first"; all give the same bits.
    ``most_recordings`` is how many recordings are kept, each for some shapes and a key; the least recently used one is
    dropped first. Each call overwrites the tensors that the last one returned: copy() those that are to last.
    """
    return Static(function, **options) if function is not None else lambda given: Static(given, **options)

"""Progress of loops."""

from __future__ import annotations

import sys
import time
from typing import Any, Generic, Iterable, Iterator, Sized, TypeVar

_Item = TypeVar("_Item")

_SECONDS_BETWEEN_LINES = 0.1


class _Line(Generic[_Item]):
    """The result of progress() without tqdm: one line on standard error, which is rewritten in place."""

    def __init__(self, iterable: Iterable[_Item], description: str, total: int | None, shown: bool) -> None:
        self._iterable, self._description, self._shown = iterable, description, shown
        self._total = total
        self._postfix = ""
        self._count = 0
        self._begun = self._told = time.monotonic()

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError("progress() does not know the number of items; expected `total`")
        return self._total

    def __iter__(self) -> Iterator[_Item]:
        self._count, self._begun = 0, time.monotonic()
        self._tell()
        try:
            for item in self._iterable:
                yield item
                self._count += 1
                if time.monotonic() - self._told >= _SECONDS_BETWEEN_LINES:
                    self._tell()
        finally:
            self._tell("\n")

    def set_postfix(self, **values: Any) -> None:
        """Shows values after the count, such as the loss."""
        texts = (
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
        )
        self._postfix = ", ".join(texts)

    def _tell(self, end: str = "") -> None:
        if not self._shown:
            return
        self._told = time.monotonic()
        seconds = self._told - self._begun
        count = f"{self._count}" if self._total is None else f"{self._count}/{self._total}"
        rate = f"{self._count / seconds:.1f}/s" if seconds > 0 else "?/s"
        parts = [f"{count} [{seconds:.0f} s, {rate}]", *([self._postfix] if self._postfix else [])]
        head = f"{self._description}: " if self._description else ""
        sys.stderr.write(f"\r{head}{', '.join(parts)}\x1b[K{end}")
        sys.stderr.flush()


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return type(running).__name__ == "ZMQInteractiveShell"


def _has_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # sys.stderr is None or closed
        return False


def progress(iterable: Iterable[_Item], description: str = "", *, total: int | None = None) -> Any:
    """Iterates, and shows the progress: in a terminal as one line, in a notebook as a bar, and otherwise not at all.

    >>> for minibatch in windrow.progress(graphs.minibatches(64, shuffle=epoch), f"epoch {epoch}"):
    ...     runner.differentiate(minibatch)

    Args:
        iterable: what to iterate over.
        description: shown before the count.
        total: the number of items, if ``len(iterable)`` does not tell.

    Returns an iterable with ``set_postfix(loss=...)``, which shows values after the count: a bar of tqdm if that
    package is installed. Since calls push ops and return, a loop runs ahead of the engine until something waits, such
    as ``minibatch.loss()``.
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    shown = _in_notebook() or _has_terminal()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(iterable, description, total, shown)
    return tqdm(iterable, desc=description or None, total=total, disable=not shown)

"""What is Python's own about engines: with blocks, asyncio, the defaults of arguments."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from . import _windrow

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from typing_extensions import Self

    from ._typing import Access


class Engine(_windrow.Engine):
    """Runs functions in an order that respects the variables that they read and change.

    >>> with windrow.Engine(workers=2) as engine:
    ...     x, y = engine.var("x"), engine.var("y")
    ...     engine.push(load, overwrite=x)
    ...     engine.push(compute, read=x, mutate=y)
    ...     engine.wait(y)

    ``policy`` is "pool", "serial", "per_device" or "chaos"; ``workers`` is the number of threads. Both default to the
    environment variables WINDROW_POLICY and WINDROW_WORKERS, or the pool and the number of cores. A thread that pushes
    is held back while more than ``max_pending_ops`` ops are pending. With ``watchdog`` (seconds), the log tells what ops
    wait for when none finishes for so long.

    Any thread may call any method. An engine lives until close(), the end of its with block, or the end of the program.
    """

    def __init__(
        self,
        policy: Literal["pool", "serial", "per_device", "chaos"] | None = None,
        workers: int | None = None,
        *,
        max_pending_ops: int | None = None,
        push_patience: float | None = None,
        chaos_seed: int = 1,
        watchdog: float | None = None,
    ) -> None:
        super().__init__(
            policy,
            workers,
            max_pending_ops=max_pending_ops,
            push_patience=push_patience,
            chaos_seed=chaos_seed,
            watchdog=watchdog,
        )
        self._made = True

    def wait(self, *reads: Access, mutate: Access = None, timeout: float | None = None) -> bool:
        """Waits for the earlier ops that change these variables or tensors; with ``mutate``, also for those that read.

        Raises OpError if one of them failed. Returns False after ``timeout`` seconds, otherwise True.
        """
        return self._wait(reads, mutate, timeout)

    async def ready(self, *reads: Access) -> None:
        """Waits for the same in a coroutine of asyncio: ``await engine.ready(x)``."""
        import asyncio  # takes a third of the import of this package

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def finish(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def tell(error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(finish, error)

        self._when_ready(reads, tell)
        await future

    def capture(self, body: Callable[[], object], *, name: str = "") -> _windrow.Graph:
        """Records what ``body`` pushes to this engine, retires and launches, and runs none of it.

        Launching the graph that it returns costs a fraction of pushing its ops.

        >>> step = engine.capture(lambda: engine.push(compute, read=x, mutate=y))
        >>> for _ in range(1000):
        ...     step.launch()
        """
        return _windrow._capture(self, body, name)

    @contextlib.contextmanager
    def trace(self, path: str | None = None) -> Iterator[Trace]:
        """Records the ops that run in the with block, and writes them to ``path`` for chrome://tracing or Perfetto."""
        self._trace_start()
        trace = Trace(self)
        try:
            yield trace
        finally:
            self._trace_stop()
            if path is not None:
                self._trace_save(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.closed:
            return
        # An op that was waited for may take a moment to end.
        pending = 0 if error is not None or _windrow._becomes_idle(self, 0.005) else self.stats().pending
        self.close()
        if pending > 0:
            warnings.warn(
                f"the with block of an engine ended while {pending} ops were pending, whose errors nobody sees; "
                "expected engine.wait_all() at its end",
                RuntimeWarning,
                stacklevel=2,
            )

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if hasattr(self, "_made") and not self.closed:
                warnings.warn(
                    "an engine that is not closed; expected a with block or close()", ResourceWarning, source=self
                )

    def __repr__(self) -> str:
        if self.closed:
            return "<windrow.Engine, closed>"
        return f"<windrow.Engine, {self.workers} workers, {self.stats().pending} ops pending>"


class Trace:
    """What an engine has recorded; see Engine.trace()."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def save(self, path: str) -> None:
        """Writes the trace as JSON, for chrome://tracing or Perfetto."""
        self._engine._trace_save(path)

    def summary(self) -> str:
        """A table: how often each op ran and how long, the threads' utilisation, the critical path."""
        return self._engine._trace_summary()


_default: Engine | None = None
"""The engine of default_engine(), which the module keeps."""

"""Engines: what Python adds to the extension module, namely with blocks, asyncio and traces."""

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

    ``policy`` is "pool", "serial", "per_device" or "chaos"; ``workers`` is the number of threads. Their defaults are
    the environment variables WINDROW_POLICY and WINDROW_WORKERS, or else "pool" and the number of cores. A thread that
    pushes is held back while more than ``max_pending_ops`` ops are pending, but at most ``push_patience`` seconds (10 by
    default) without an op that finishes. If no op finishes for ``watchdog`` seconds, the log tells what the pending ops
    wait for. ``chaos_seed`` is the seed of the policy "chaos", which runs ready ops in a random order.

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
        """Waits for earlier ops that change ``reads``, and for earlier ops that read or change ``mutate``.

        Both are variables or tensors. Raises OpError if one of these ops failed. Returns False after ``timeout``
        seconds, otherwise True.
        """
        return self._wait(reads, mutate, timeout)

    async def ready(self, *reads: Access) -> None:
        """As wait(*reads), in a coroutine of asyncio: ``await engine.ready(x)``."""
        import asyncio  # not at the top: takes a third of the import time of this package

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
            with contextlib.suppress(RuntimeError):  # raised if the loop has ended
                loop.call_soon_threadsafe(finish, error)

        self._when_ready(reads, tell)
        await future

    def capture(self, body: Callable[[], object], *, name: str = "") -> _windrow.Graph:
        """Calls ``body``, and records what it pushes to this engine, retires and launches, without running any of it.

        Returns a graph. To launch it costs a fraction of pushing its ops.

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
        # An op may still be pending for a moment after a wait for it has returned.
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
    """The recording of an engine; see Engine.trace()."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def save(self, path: str) -> None:
        """Writes the trace as JSON, for chrome://tracing or Perfetto."""
        self._engine._trace_save(path)

    def summary(self) -> str:
        """A table: how often each op ran and how long, the threads' utilisation, the critical path."""
        return self._engine._trace_summary()


_default: Engine | None = None
"""The engine of default_engine(), which this variable keeps alive."""

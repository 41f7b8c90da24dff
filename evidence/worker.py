"""One worker process for what would hold up an event loop: encoding pictures, masking and rewriting large texts.

Jobs are plain module-level functions of this package with values that can be pickled; a job may not touch the store,
the page or the network. The process is started on first use and ends with `close`, with its parent, or with a job
that overran. It is spawned: a program that captures must guard its entry with ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_pool: ProcessPoolExecutor | None = None


async def run(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the job in the worker and give its result or exception. If the worker was killed, one new worker is tried.

    Cancelling gives up waiting; the worker is then left to end alone and the next job gets a fresh one.
    """
    for last in (False, True):
        pool = _current()
        try:
            return await asyncio.wrap_future(pool.submit(job, *args, **kwargs))
        except BrokenProcessPool:
            _forget(pool)
            if last:
                raise
        except asyncio.CancelledError:
            _forget(pool)
            raise
    raise AssertionError("unreachable")


async def start() -> None:
    """Start the process and load what it needs (a few tenths of a second), so that the first capture does not wait
    for it."""
    await run(_load)


def close() -> None:
    """End the worker and wait for it. Evidence can be taken again afterwards: a new one is started."""
    with _lock:
        global _pool
        pool, _pool = _pool, None
    if pool is not None:
        pool.shutdown(wait=True, cancel_futures=True)


def _current() -> ProcessPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            # spawn: a fork of a process with threads and an open browser pipe could inherit a held lock
            context = multiprocessing.get_context("spawn")
            _pool = ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=_follow_parent)
        return _pool


def _forget(pool: ProcessPoolExecutor) -> None:
    global _pool
    with _lock:
        if _pool is pool:
            _pool = None
    pool.shutdown(wait=False, cancel_futures=True)


def _follow_parent() -> None:
    """Ctrl-C is for the parent to handle; when the parent is killed, nothing else would end this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(0)


def process_id() -> int:
    """A job: which process this is."""
    return os.getpid()


def _load() -> None:
    from evidence import dom_snapshot, picture  # noqa: F401 - loading them is the job

"""One worker process for what would hold up an event loop: encoding pictures, masking and rewriting large texts.

Jobs are plain module-level functions of this package with values that can be pickled; a job may not touch the store,
the page or the network. The process is started on first use and ends with `close`, with its parent, or with a job
that overran. It is a program of its own on two pipes, not a copy of this one: nothing of the caller's main module is
run a second time there, so a script needs no guard around its entry.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LENGTH = struct.Struct(">Q")


class WorkerLost(Exception):
    """The worker process ended before it had answered."""


async def run(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the job in the worker and give its result or exception. If the worker was killed, one new worker is tried.

    Cancelling gives up waiting and ends the worker, if it is at this job; the next job gets a fresh one.
    """
    frame = pickle.dumps((job, args, kwargs))
    for last in (False, True):
        worker, call = _current(), _Call(frame)
        try:
            succeeded, value = await asyncio.to_thread(worker.carry_out, call)
        except WorkerLost:
            _forget(worker)
            if last:
                raise
            continue
        except asyncio.CancelledError:
            if worker.give_up(call):
                _forget(worker)
            raise
        if succeeded:
            return value  # type: ignore[no-any-return]  # a T: it is what the job returned
        raise value
    raise AssertionError("unreachable")


async def start() -> None:
    """Start the process and load what it needs (a few tenths of a second), so that the first capture does not wait
    for it."""
    await run(_load)


def close() -> None:
    """End the worker and wait for it. Evidence can be taken again afterwards: a new one is started."""
    with _lock:
        global _worker
        worker, _worker = _worker, None
    if worker is not None:
        worker.end()


def read_frame(pipe: BinaryIO) -> bytes | None:
    """One length-prefixed message, None at the end of the pipe or when it ends inside a message."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


def write_frame(pipe: BinaryIO, data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


class _Call:
    """One job on its way. `given_up` is set by the caller that no longer waits for it."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.given_up = False


class _Worker:
    """The process, and the one job that it is at. `carry_out` blocks: it runs in threads."""

    def __init__(self) -> None:
        # The child finds this package wherever the parent did.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evidence.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._at: _Call | None = None

    def carry_out(self, call: _Call) -> tuple[bool, Any]:
        """Send the job and wait for its answer: (succeeded, result or exception). Raises `WorkerLost`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            with self._state:
                if call.given_up:
                    raise WorkerLost("nobody waits for this job any more")
                self._at = call
            try:
                write_frame(self._process.stdin, call.frame)  # type: ignore[arg-type]  # IO[bytes] is what Popen says
                answer = read_frame(self._process.stdout)  # type: ignore[arg-type]
            except (OSError, ValueError) as error:  # ValueError: the pipe was closed by `end`
                raise WorkerLost(str(error)) from error
            finally:
                with self._state:
                    self._at = None
        if answer is None:
            raise WorkerLost(f"the worker process ended with status {self._process.poll()}")
        succeeded, value = pickle.loads(answer)
        return succeeded, value

    def give_up(self, call: _Call) -> bool:
        """The caller of a job no longer waits. True when the worker is at it, and so was ended."""
        with self._state:
            call.given_up = True
            if self._at is not call:
                return False
        self._process.kill()
        return True

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not sent is not wanted any more
                    pipe.close()


_lock = threading.Lock()
_worker: _Worker | None = None


def _current() -> _Worker:
    global _worker
    with _lock:
        if _worker is None:
            _worker = _Worker()
        return _worker


def _forget(worker: _Worker) -> None:
    global _worker
    with _lock:
        if _worker is worker:
            _worker = None
    worker.end()


def process_id() -> int:
    """A job: which process this is."""
    return os.getpid()


def _load() -> None:
    from evidence import dom_snapshot, picture  # noqa: F401 - loading them is the job


atexit.register(close)

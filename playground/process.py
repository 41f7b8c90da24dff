"""Start and stop the site as a process of its own, and reach its record.

The process ends with the one that started it, so that a killed test run leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from playground.truth import Truth

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
LOG_NAME = "server.log"


class StartError(RuntimeError):
    """The site did not come up; the message carries the end of its log."""


@dataclass(frozen=True)
class Playground:
    """A running site. Use as a context manager, plain or async, or call `stop`."""

    plain: str
    tls: str
    ca: Path
    pid: int
    truth: Truth
    _process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        data_dir: Path | str,
        *,
        port: int = 0,
        tls_port: int = 0,
        http2: bool = False,
        timeout: float = START_TIMEOUT_S,
    ) -> Playground:
        """Start the site over `data_dir` (kept from one start to the next) and wait until it is ready.

        With `http2` the HTTPS port speaks HTTP/2 with whoever wants it. Blocks for about half a second; `timeout` is in
        seconds. Raises StartError.
        """
        data = Path(data_dir)
        data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "playground", "--data", str(data), "--with-parent"]
        command += ["--port", str(port), "--tls-port", str(tls_port), *(["--http2"] if http2 else [])]
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        log = data / LOG_NAME
        with log.open("ab") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stream,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C in a terminal goes to the starter, which stops us in order
            )
        try:
            ready = json.loads(_first_line(process, timeout))
        except (ValueError, TimeoutError) as error:
            _end(process)
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
            raise StartError(f"The playground did not start in {timeout:g} s. Its log: {tail or '(empty)'}") from error
        return cls(
            plain=ready["plain"],
            tls=ready["tls"],
            ca=Path(ready["ca"]),
            pid=ready["pid"],
            truth=Truth(ready["truth"]),
            _process=process,
        )

    @classmethod
    async def start_async(
        cls, data_dir: Path | str, *, port: int = 0, tls_port: int = 0, timeout: float = START_TIMEOUT_S
    ) -> Playground:
        """`start`, off the event loop."""
        return await asyncio.to_thread(cls.start, data_dir, port=port, tls_port=tls_port, timeout=timeout)

    def stop(self) -> int:
        """End the site in order (killed after 5 s) and return its exit code. May be called again."""
        return _end(self._process)

    def kill(self) -> None:
        """End the site at once, as a crash would. The record stays readable through `truth`."""
        self._process.kill()
        _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def _first_line(process: subprocess.Popen[bytes], timeout: float) -> bytes:
    """The first line of standard output. Raises TimeoutError, or ValueError when the output ends before it."""
    stream = _output(process)
    deadline = time.monotonic() + timeout
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise TimeoutError
            chunk = os.read(stream.fileno(), 4096)
            if not chunk:
                raise ValueError("the process ended without a word")
            line += chunk
    return line


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None  # opened as a pipe above
    return process.stdout


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _output(process).close()
    return int(process.returncode)

"""Run the site: `python -m playground --data DIR`. Prints one line of JSON when it is ready.

Ends on SIGTERM and SIGINT and, with `--with-parent`, when the process that started it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from playground import tls
from playground.server import Server
from playground.truth import Truth


@contextlib.contextmanager
def _ended_with_parent(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` when the parent process ends.

    A process descriptor is watched rather than PR_SET_PDEATHSIG set, because that signal comes when the
    *thread* that started this process ends, which a worker thread soon does.
    """
    parent = os.getppid()
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        stop.set()
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, stop.set)
    if os.getppid() != parent:  # it ended, and its number may already be another's
        stop.set()
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def serve(data: Path, port: int, tls_port: int, *, with_parent: bool, http2: bool = False) -> None:
    """Serve until told to stop. Raises OSError when a port is taken or the directory is not writable."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    files = tls.ensure(data)
    with (
        contextlib.closing(Truth(data / "truth.sqlite", keep_open=True)) as truth,
        _ended_with_parent(stop) if with_parent else contextlib.nullcontext(),
    ):
        server = Server(truth)
        try:
            plain = await server.start(port)
            secure = await server.start(tls_port, tls=tls.server_context(files, http2=http2))
            ready = {
                "plain": f"http://127.0.0.1:{plain}",
                "tls": f"https://localhost:{secure}",
                "ca": str(files.ca.resolve()),
                "truth": str(truth.path.resolve()),
                "pid": os.getpid(),
            }
            sys.stdout.write(json.dumps(ready) + "\n")
            sys.stdout.flush()
            await stop.wait()
        finally:
            await server.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="playground", description="A local publishing site to practise on.")
    parser.add_argument("--data", type=Path, required=True, help="directory for the record and certificates")
    parser.add_argument("--port", type=int, default=0, help="plain HTTP port (0: any free one)")
    parser.add_argument("--tls-port", type=int, default=0, help="HTTPS port (0: any free one)")
    parser.add_argument("--http2", action="store_true", help="speak HTTP/2 on the HTTPS port with whoever wants it")
    parser.add_argument("--with-parent", action="store_true", help="end when the starting process ends")
    options = parser.parse_args()
    try:
        options.data.mkdir(parents=True, exist_ok=True)
        asyncio.run(
            serve(options.data, options.port, options.tls_port, with_parent=options.with_parent, http2=options.http2)
        )
    except OSError as error:
        sys.stderr.write(f"playground: cannot start: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A front in front of the site that loses one answer: the request arrives and is worked on, and its answer does not
come back. A TCP forwarder on loopback; it understands nothing but the mark it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LossyFront:
    """`url` is where the site is then found. `lost` counts the answers that did not come back."""

    def __init__(self, port: int, mark: bytes) -> None:
        self._port = port
        self._mark = mark
        self._going: set[asyncio.Task[None]] = set()
        self.url = ""
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._going.add(task)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        marked = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forth(reader, up_writer, marked))
                both.create_task(self._back(up_reader, writer, marked))
        except* OSError:
            pass  # one side has gone, so the other may
        finally:
            for one in (writer, up_writer):
                one.transport.abort()
            self._going.discard(task)

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marked: asyncio.Event) -> None:
        seen = b""
        while data := await reader.read(65536):
            seen = (seen + data)[-1024 * 1024 :]
            if self._mark in seen:
                marked.set()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marked: asyncio.Event) -> None:
        while data := await reader.read(65536):
            if marked.is_set():  # the site has answered, so it has done what it was asked
                self.lost += 1
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def close(self) -> None:
        for task in tuple(self._going):
            task.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)


@asynccontextmanager
async def losing_the_answer(port: int, mark: bytes) -> AsyncIterator[LossyFront]:
    """Lose the answer of every request whose bytes hold `mark`."""
    front = LossyFront(port, mark)
    server = await asyncio.start_server(front.serve, "127.0.0.1", 0)
    front.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield front
    finally:
        server.close()
        await front.close()
        await server.wait_closed()

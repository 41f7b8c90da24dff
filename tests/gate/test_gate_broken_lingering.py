"""What a closed connection still sends, and what never ends: a site that takes a connection and then reads nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from gate_origin import Client
from gate_support import rules_for

from executor.gate.port import Candidate, Hang, Refuse, Relay, WriteFailed
from executor.gate.rules import Kind, Phase

FORM = "application/x-www-form-urlencoded"
LARGE = b"do=publish&text=" + b"x" * 4_000_000


class DeafSite:
    """Accepts, and reads nothing until it is told to. `received` is what it then finds: its ground truth."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.taken: list[socket.socket] = []
        self.connected = threading.Event()
        self.thread = threading.Thread(target=self._accept)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.taken.append(connection)
            self.connected.set()

    def read_it_all(self) -> bytes:
        """Everything that still comes on the first connection."""
        connection = self.taken[0]
        connection.settimeout(2)
        received = b""
        try:
            while data := connection.recv(1 << 16):
                received += data
        except OSError:
            pass
        return received

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(5)
        for connection in self.taken:
            connection.close()


@pytest.fixture
def deaf() -> Iterator[DeafSite]:
    site = DeafSite()
    yield site
    site.close()


class Door:
    def __init__(self) -> None:
        self.failure: WriteFailed | None = None
        self.ended_after: float | None = None
        self.ended = asyncio.Event()

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
        connection = await candidate.connect()
        started = time.monotonic()
        try:
            await connection.write()
            await connection.read_answer(0.3)
        except WriteFailed as error:
            self.failure = error
        finally:
            connection.close()
            self.ended_after = time.monotonic() - started
            self.ended.set()
        return Hang()


async def begin(client: Client, target: str, body: bytes, method: str = "POST") -> asyncio.Task[object]:
    return asyncio.create_task(client.ask(method, target, body, Content_Type=FORM))


async def test_an_effect_that_the_site_does_not_read_ends_and_does_not_leave_later(deaf, make_gate, connect) -> None:
    door = Door()
    gate = await make_gate(deaf, Phase.ARMED, door=door, upstream_write_stall_s=0.5)
    client = await connect(gate, deaf.url)
    asking = await begin(client, "/publish", LARGE)
    await asyncio.wait_for(door.ended.wait(), 10)
    assert door.failure is not None and not door.failure.nothing_written
    assert await gate.without_candidates(5)
    got = await asyncio.to_thread(deaf.read_it_all)
    assert len(got) < len(LARGE), "the whole effect arrived after the gate had closed the connection"
    gate.let_go()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asking, 5)


async def test_a_whole_effect_in_the_systems_buffer_does_not_leave_after_the_deadline(deaf, make_gate, connect) -> None:
    """Small enough for the gate to be rid of it, too large for the site's window: it waits in the kernel."""
    body = b"do=publish&text=" + b"x" * 1_000_000
    door = Door()
    gate = await make_gate(deaf, Phase.ARMED, door=door)
    client = await connect(gate, deaf.url)
    asking = await begin(client, "/publish", body)
    await asyncio.wait_for(door.ended.wait(), 10)
    got = await asyncio.to_thread(deaf.read_it_all)
    assert len(got) < len(body), "the whole effect arrived after the gate had closed the connection"
    gate.let_go()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asking, 5)


async def test_a_supporting_write_that_the_site_does_not_read_ends_and_does_not_leave_later(
    deaf, make_gate, connect
) -> None:
    gate = await make_gate(deaf, rules=rules_for(deaf), upstream_write_stall_s=0.5)
    client = await connect(gate, deaf.url)
    got = await asyncio.wait_for(client.ask("PUT", "/upload", LARGE), 10)
    assert got.interlock == "upstream_failed"
    assert await gate.quiet(5)
    (entry,) = [one for one in gate.log if one.kind is Kind.SUPPORTING]
    assert entry.bytes_out and entry.left_until is not None
    assert len(await asyncio.to_thread(deaf.read_it_all)) < len(LARGE)


async def test_closing_the_gate_takes_back_what_has_not_left(deaf, make_gate, connect) -> None:
    gate = await make_gate(deaf, rules=rules_for(deaf))
    client = await connect(gate, deaf.url)
    asking = await begin(client, "/upload", LARGE, "PUT")
    await asyncio.to_thread(deaf.connected.wait, 5)
    await gate.until(lambda: any(one.bytes_out for one in gate.log), 5)
    await asyncio.wait_for(gate.close(), 10)
    assert len(await asyncio.to_thread(deaf.read_it_all)) < len(LARGE)
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asking, 5)

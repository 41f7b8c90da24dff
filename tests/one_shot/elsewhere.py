"""A browser that runs elsewhere, as seen from here: a Chromium of its own, started with the printed command line, and a
tunnel to it. Both are on loopback; the tunnel is a forwarder on other ports, as `ssh -L` and `-R` would make it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright._impl._driver import compute_driver_executable

from executor.browser.arguments import remote_arguments
from executor.browser.engines import EndpointKind
from executor.browser.finding import find_browser
from executor.browser.remote import Remote, kept_authority
from executor.settings import Settings

GATES = 4
"""Two for each run at once."""


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that are free now; they lie below those that the kernel gives away."""
    for first in range(20_000 + os.getpid() % 1000 * 8, 32_000, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


@dataclass
class Forwarder:
    """A tunnel's two ends: what comes to `port` goes on to `target`. `cut` ends it with everything in it."""

    port: int
    target: int
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self._open.add(back)
        try:
            there, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            back.transport.abort()
            self._open.discard(back)
            return
        self._open.add(forth)
        await asyncio.gather(self._carry(here, forth), self._carry(there, back))

    async def _carry(self, come: asyncio.StreamReader, go: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await come.read(65536):
                go.write(data)
                await go.drain()
        go.close()
        self._open.discard(go)


@dataclass
class Elsewhere:
    """What to set so that runs use it, and the tunnel to it."""

    settings: dict[str, Any]
    tunnel: list[Forwarder]

    async def cut(self) -> None:
        for forwarder in self.tunnel:
            await forwarder.cut()


@contextlib.asynccontextmanager
async def elsewhere(
    key_folder: Path,
    *,
    without: Sequence[str] = (),
    gates_lead_to: int | None = None,
    kind: EndpointKind = EndpointKind.CDP,
) -> AsyncIterator[Elsewhere]:
    """Start one. `without`: leave out these switches; `gates_lead_to`: a wrong place for the tunnel's end."""
    first = free_ports(GATES * 2)
    there = first + GATES
    given: dict[str, Any] = {
        "browser_endpoint": "http://127.0.0.1:1",
        "gate_listen": f"{first}-{there - 1}",
        "gate_reached_as": f"127.0.0.1:{there}",
    }
    remote = Remote.of(Settings(key_folder=key_folder, **given))
    assert remote is not None
    arguments = remote_arguments(spki=kept_authority(key_folder).spki, gates_at=remote.gates_at)
    arguments = [one for one in arguments if one.partition("=")[0] not in without]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with tempfile.TemporaryDirectory(prefix="elsewhere-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        start = _chromium if kind is EndpointKind.CDP else _playwright_server
        process = await asyncio.to_thread(start, folder, arguments)
        forwarders: list[Forwarder] = []
        try:
            scheme, port, path = await (_devtools if kind is EndpointKind.CDP else _printed)(folder)
            gates = [Forwarder(there + number, gates_lead_to or first + number) for number in range(GATES)]
            forwarders = [Forwarder(0, port), *gates]
            for forwarder in forwarders:
                await forwarder.start()
            given["browser_endpoint"] = f"{scheme}://127.0.0.1:{forwarders[0].port}{path}"
            yield Elsewhere(given, forwarders)
        finally:
            for forwarder in forwarders:
                await forwarder.cut()
            process.terminate()
            await asyncio.to_thread(process.wait, 20)


def _chromium(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    own = ["--headless", f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    return subprocess.Popen([str(find_browser().path), *own, *arguments], stderr=subprocess.DEVNULL)


def _playwright_server(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """The driver's own server, with a browser that it has launched."""
    config = {"headless": True, "executablePath": str(find_browser().path), "args": arguments, "host": "127.0.0.1"}
    (folder / "server.json").write_text(json.dumps(config))
    command = [*compute_driver_executable(), "launch-server", "--browser", "chromium"]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen([*command, "--config", str(folder / "server.json")], stdout=said)


async def _devtools(folder: Path) -> tuple[str, int, str]:
    said = await _written(folder / "DevToolsActivePort", lines=2)
    return "http", int(said[0]), ""


async def _printed(folder: Path) -> tuple[str, int, str]:
    said = urlsplit((await _written(folder / "said", lines=1))[0])
    assert said.port is not None
    return said.scheme, said.port, said.path


async def _written(file: Path, *, lines: int) -> list[str]:
    """A program writes down where it listens, once it does; nothing else tells when."""
    for _ in range(1200):
        if len(said := await asyncio.to_thread(_lines, file)) >= lines:
            return said
        await asyncio.sleep(0.05)
    raise AssertionError("the browser did not start")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []

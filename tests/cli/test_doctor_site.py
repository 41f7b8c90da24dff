"""`interlock doctor SITE` against real sites on loopback: what it says is compared with what they did."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from executor.cli.main import execute
from playground import tls

pytestmark = pytest.mark.browser


class Wall:
    """A site over TLS on loopback, in a thread of its own. It tells clients apart by the ciphers that they offer, as
    bot walls do: with `closed`, those that offer what no browser offers any more get 403 in place of the page."""

    def __init__(self, folder: Path, *, closed: bool) -> None:
        self.ca = tls.ensure(folder).ca
        self.requests: list[str] = []
        self.statuses: list[int] = []
        self._closed = closed
        self._context = tls.server_context(tls.ensure(folder))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            if "Sec-Fetch-Dest: document" in head:
                self.requests.append(head.partition("\r\n")[0])
            shared = writer.get_extra_info("ssl_object").shared_ciphers() or ()
            alien = any(name.startswith("DHE-") for name, _, _ in shared)
            status, title = (403, "No robots") if alien and self._closed else (200, "Welcome")
            fields = "Set-Cookie: sid=1; HttpOnly; Path=/admin; SameSite=Strict\r\nConnection: close\r\n"
            if path.startswith("/old"):
                status, fields = 302, "Location: /new\r\nConnection: close\r\n"
            if "Sec-Fetch-Dest: document" in head:
                self.statuses.append(status)
            assert path != "/app.js", "a script was asked for"
            page = f"<!doctype html><title>{title}</title><script src=/app.js></script>".encode()
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(page)}\r\n{fields}\r\n".encode() + page)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # a connection that was opened ahead, for which there was nothing to ask
        finally:
            writer.close()


@pytest.fixture
def wall(tmp_path: Path) -> Iterator[Callable[..., Wall]]:
    made: list[Wall] = []

    def make(*, closed: bool) -> Wall:
        folder = tmp_path / f"site{len(made)}"
        folder.mkdir()
        made.append(Wall(folder, closed=closed))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, dict[str, str]]]]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("INTERLOCK_HOME", str(home))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "keys"))

    def call(address: str, *, trust: Path | None = None) -> tuple[int, dict[str, dict[str, str]]]:
        if trust is not None:
            (home / "settings.toml").write_text(f"trust = [{json.dumps(str(trust))}]\n", encoding="utf-8")
        exit_code = execute(["doctor", "--quick", address, "--json"])
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return exit_code, {one["name"]: one for one in said.get("checks", [])}

    return call


def test_a_site_that_takes_the_gate_as_it_takes_a_browser(wall, doctor) -> None:
    site = wall(closed=False)
    code, checks = doctor(site.url + "/old?token=secret", trust=site.ca)
    assert code == 0, checks
    assert checks["connection"]["says"].startswith("reached directly, 0 ms away")
    assert "issued by Playground local authority" in checks["certificate"]["says"]
    assert checks["protocol"]["says"] == "speaks HTTP/1.1"
    assert checks["page"]["says"] == "behind the gate: status 200 “Welcome”"
    assert checks["redirects"]["says"] == f"{site.url}/old → {site.url}/new"
    assert checks["handshake"]["fitness"] == "good"
    assert checks["cookies"]["says"] == "sid for /admin (HttpOnly, SameSite=Strict)"
    # One page, twice, and nothing that its scripts could have asked for.
    assert site.requests == ["GET /old?token=secret HTTP/1.1", "GET /new HTTP/1.1"] * 2


def test_a_site_that_turns_the_gate_away(wall, doctor) -> None:
    site = wall(closed=True)
    code, checks = doctor(site.url, trust=site.ca)
    assert sorted(site.statuses) == [200, 403], "the site did not tell the two apart: the test shows nothing"
    assert code == 70
    assert checks["page"]["fitness"] == "note"
    assert "status 403 “No robots”" in checks["page"]["says"]
    assert checks["handshake"]["fitness"] == "missing"
    assert "status 200 “Welcome”" in checks["handshake"]["says"]


def test_a_certificate_that_nobody_vouches_for(wall, doctor) -> None:
    site = wall(closed=False)
    code, checks = doctor(site.url)
    assert code == 70
    assert checks["connection"]["fitness"] == "missing"
    assert "certificate verify failed" in checks["connection"]["says"]
    assert "page" not in checks
    assert site.requests == []


def test_a_dead_site_and_no_site(doctor, unused_tcp_port: int) -> None:
    code, checks = doctor(f"http://127.0.0.1:{unused_tcp_port}")
    assert code == 70
    assert "(connect)" in checks["connection"]["says"]
    assert doctor("no address")[0] == 2

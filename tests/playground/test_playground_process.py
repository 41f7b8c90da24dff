"""The process: ready line, TLS that verifies strictly, and the ways in which it ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import select
import signal
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from playground.process import Playground, StartError

ROOT = Path(__file__).resolve().parents[2]


def command(data: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "playground", "--data", str(data), *more]


def wait_until_ended(pid: int) -> None:
    """Await the end of a process that is not our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], 10)
        assert ready, f"process {pid} is still running"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_one_line_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as run:
        assert run.stdout is not None
        ready = json.loads(run.stdout.readline())
        assert set(ready) == {"plain", "tls", "ca", "truth", "pid"}
        assert ready["pid"] == run.pid
        held = http.client.HTTPConnection("127.0.0.1", urlsplit(ready["plain"]).port, timeout=5)
        held.request("GET", "/")
        held.getresponse().read()
        run.send_signal(number)
        rest, errors = run.communicate(timeout=10)
        held.close()
    assert (run.returncode, rest, errors) == (0, b"", b"")


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom playground.process import Playground\n"
        "site = Playground.start(sys.argv[1])\nprint(site.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until_ended(pid)


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Playground] = []
    thread = threading.Thread(target=lambda: started.append(Playground.start(tmp_path)))
    thread.start()
    thread.join()
    (site,) = started
    with site:
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(site.plain).port, timeout=5)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
    assert site.stop() == 0


async def test_it_can_be_started_from_a_coroutine(tmp_path: Path) -> None:
    async with await Playground.start_async(tmp_path) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(site.plain).port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


def test_the_record_and_the_certificates_last_from_one_start_to_the_next(tmp_path: Path) -> None:
    with Playground.start(tmp_path) as site:
        site.truth.create(account="editor", title="Kept", body="", state="published", variant="form")
        authority = site.ca.read_bytes()
        site.kill()
        assert site.truth.publish_count("Kept") == 1
    with Playground.start(tmp_path) as site:
        assert site.truth.publish_count("Kept") == 1
        assert site.ca.read_bytes() == authority


def test_a_taken_port_is_said_in_the_error(site: Playground, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot start"):
        Playground.start(tmp_path, port=urlsplit(site.plain).port or 0)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_tls_verifies_strictly_against_its_authority(site: Playground, name: str) -> None:
    context = ssl.create_default_context(cafile=site.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2", "http/1.1"])
    port = urlsplit(site.tls).port
    connection = http.client.HTTPSConnection(name, port, context=context, timeout=5)
    connection.request(
        "POST",
        "/login",
        "user=editor&password=playground",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.selected_alpn_protocol() == "http/1.1"
    answer = connection.getresponse()
    assert answer.headers["Set-Cookie"].endswith("; SameSite=Lax; Secure")
    connection.close()
    assert site.truth.requests()[-1].scheme == "https"


def test_tls_is_not_trusted_without_its_authority(site: Playground) -> None:
    connection = http.client.HTTPSConnection("localhost", urlsplit(site.tls).port, timeout=5)
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/")
    connection.close()


def test_the_private_key_is_for_its_owner_only(site: Playground) -> None:
    key = site.ca.with_name("leaf.key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize("fault", ["reset_after", "close_after", "truncated"])
def test_faults_strike_on_tls_too(site: Playground, fault: str) -> None:
    session = site.truth.open_session("editor")
    context = ssl.create_default_context(cafile=site.ca)
    connection = http.client.HTTPSConnection("localhost", urlsplit(site.tls).port, context=context, timeout=5)
    site.truth.inject(fault, path_prefix="/api")
    connection.request(
        "POST",
        "/api/items",
        '{"title": "T", "status": "published"}',
        {"Content-Type": "application/json", "Cookie": f"pg_session={session}"},
    )
    expected = {
        "reset_after": ConnectionResetError,
        "close_after": http.client.RemoteDisconnected,
        "truncated": http.client.IncompleteRead,
    }
    with pytest.raises(expected[fault]):
        connection.getresponse().read()
    connection.close()
    assert site.truth.publish_count("T") == 1

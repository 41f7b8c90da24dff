"""What is asked of a browser that somebody else started, and what the settings may say of it. No browser is needed."""

from __future__ import annotations

import asyncio
import errno
import json
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from executor.browser.arguments import command_line, launch_arguments, remote_arguments, shortcomings
from executor.browser.engines import FIREFOX_PREFS, EndpointKind, Engine, context_options, launch_options
from executor.browser.finding import BrowserMissing, Machine, find_engine
from executor.browser.remote import GatePorts, Remote, kept_authority
from executor.cli.main import app
from executor.errors import BadInput, NotReady
from executor.gate.listening import Listener
from executor.settings import Settings

WANTED = remote_arguments(spki="KEY=", gates_at="127.0.0.1")
BASE: dict[str, Any] = {"browser_endpoint": "http://127.0.0.1:9222", "gate_listen": "41000-41007"}


def remote(tmp_path: Path, **given: Any) -> Remote:
    found = Remote.of(Settings(key_folder=tmp_path, **{**BASE, **given}))
    assert found is not None
    return found


def test_the_printed_command_is_what_is_asked_for() -> None:
    words = shlex.split(command_line(WANTED, port=9222))
    assert shortcomings(words, WANTED) == ()
    assert "--remote-debugging-port=9222" in words


@pytest.mark.parametrize("switch", [one for one in WANTED if one not in ("--disable-gpu", "--no-first-run")])
def test_each_switch_is_missed(switch: str) -> None:
    (wrong,) = shortcomings([one for one in WANTED if one != switch], WANTED)
    assert wrong == f"{switch.partition('=')[0]} is missing"


@pytest.mark.parametrize(
    ("added", "wrong"),
    [
        ("--proxy-server=http://10.0.0.1:3128", "--proxy-server is 'http://10.0.0.1:3128'"),
        ("--host-resolver-rules=", "--host-resolver-rules is ''"),
        ("--disable-features=Prerender2", "--disable-features lacks"),
        ("--enable-features=Prerender2<Study", "--enable-features has Prerender2"),
        ("--no-proxy-server", "ignores every proxy"),
        ("--load-extension=/opt/one", "loads an extension"),
        ("--remote-debugging-address=0.0.0.0", "opens its control port"),
    ],
)
def test_the_last_of_equal_switches_counts_and_none_may_lead_around(added: str, wrong: str) -> None:
    found = shortcomings([*WANTED, added], WANTED)
    assert len(found) == 1
    assert wrong in found[0]


def test_what_stands_behind_two_dashes_or_is_harmless_does_not_count() -> None:
    assert shortcomings([*WANTED, "--load-extension", "--", "--no-proxy-server"], WANTED) == ()
    assert shortcomings([one for one in WANTED if one != "--disable-gpu"], WANTED) == ()


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [
        ("http://127.0.0.1:9222", EndpointKind.CDP),
        ("ws://localhost:9222/devtools/browser/1", EndpointKind.CDP),
        ("ws://127.0.0.1:3000/secret", EndpointKind.PLAYWRIGHT),
        ("wss://browsers.example/secret", EndpointKind.PLAYWRIGHT),
    ],
)
def test_the_kind_of_an_endpoint_is_told_by_its_address(endpoint: str, kind: EndpointKind, tmp_path: Path) -> None:
    found = remote(tmp_path, browser_endpoint=endpoint)
    assert found.kind is kind
    assert "secret" not in found.name
    assert remote(tmp_path, browser_endpoint=endpoint, browser_endpoint_kind="cdp").kind is EndpointKind.CDP


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"browser_endpoint": "http://browsers.example:9222"}, "on another machine and not encrypted"),
        ({"browser_endpoint": "9222"}, "is an address such as"),
        ({"gate_listen": None}, "INTERLOCK_GATE_LISTEN"),
        ({"gate_listen": "80-90"}, "from 1024 on"),
        ({"gate_listen": "41007-41000"}, "from 1024 on"),
        ({"gate_reached_as": "gate.example:41000"}, "an IP address and a port"),
        ({"browser_engine": "firefox"}, "does not tell how it was started"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        remote(tmp_path, **given)


def test_the_browser_is_told_the_other_end_of_the_tunnel(tmp_path: Path) -> None:
    assert remote(tmp_path).reach("http://127.0.0.1:41003") == "http://127.0.0.1:41003"
    mapped = remote(tmp_path, gate_reached_as="[fd00::1]:5000")
    assert mapped.reach("http://127.0.0.1:41003") == "http://[fd00::1]:5003"
    assert mapped.gates_at == "fd00::1"


def test_the_key_that_a_remote_browser_believes_stays(tmp_path: Path) -> None:
    first = kept_authority(tmp_path)
    assert kept_authority(tmp_path).spki == first.spki
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"not a key")
    with pytest.raises(NotReady, match="damaged"):
        kept_authority(tmp_path)


async def test_gates_take_the_port_that_was_used_longest_ago() -> None:
    """A port that is taken is passed over; with none left it says so."""
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        taken, free = first.getsockname()[1], second.getsockname()[1]
        second.close()
        first.listen()
        ports = GatePorts((taken, free))

        async def serve(connection: socket.socket) -> None:
            connection.close()

        listener = Listener(serve, connections=1, ports=ports.offer())
        listener.start()
        assert listener.address == f"http://127.0.0.1:{free}"
        assert ports.offer() == (free, taken)
        with pytest.raises(OSError, match="every port for a gate is in use") as refused:
            Listener(serve, connections=1, ports=(taken, free)).start()
        assert refused.value.errno == errno.EADDRINUSE
        # Once it is closed its port can be taken again, whatever its connections left in the kernel.
        reader, writer = await asyncio.open_connection("127.0.0.1", free)
        assert await reader.read() == b""
        writer.close()
        await listener.close()
        again = Listener(serve, connections=1, ports=(free,))
        again.start()
        await again.close()


def test_the_command_line_prints_it_for_the_key_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "keys"))
    said = CliRunner().invoke(app, ["browser", "arguments", "--json"])
    assert said.exit_code == 0, said.output
    printed = json.loads(said.output)
    wanted = remote_arguments(spki=kept_authority(tmp_path / "keys").spki, gates_at="127.0.0.1")
    assert printed["arguments"] == wanted
    assert shortcomings(shlex.split(printed["command"]), wanted) == ()


@pytest.mark.parametrize("engine", [Engine.FIREFOX, Engine.WEBKIT])
def test_an_engine_that_is_not_there_is_named_with_the_command_for_it(engine: Engine, tmp_path: Path) -> None:
    bare = Machine(
        environment={"PATH": "", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}, python=Path(sys.executable), system="linux"
    )
    with pytest.raises(BrowserMissing, match=f"interlock browser install --engine {engine.value}"):
        find_engine(engine, machine=bare)
    with pytest.raises(BrowserMissing, match="INTERLOCK_BROWSER names"):
        find_engine(engine, tmp_path / "none", machine=bare)


@pytest.mark.parametrize("engine", Engine)
def test_every_engine_has_a_proxy_for_the_process_and_one_for_the_context(engine: Engine) -> None:
    deny, gate = "http://127.0.0.1:1000", "http://127.0.0.1:2000"
    arguments = launch_arguments(deny_address=deny, spki="KEY=", as_root=False)
    launched = launch_options(engine, stock=False, arguments=arguments, deny_address=deny)
    assert launched.get("proxy") == {"server": deny} or f"--proxy-server={deny}" in launched["args"]
    opened = context_options(engine, gate_address=gate)
    assert opened["proxy"]["server"] == gate
    # Only Chromium takes a list of keys; in it no certificate but the gate's is believed.
    assert opened["ignore_https_errors"] is (engine is not Engine.CHROMIUM)


def test_firefox_is_told_what_the_switches_tell_chromium() -> None:
    told = launch_options(Engine.FIREFOX, stock=True, arguments=[], deny_address="http://127.0.0.1:1")
    assert told["channel"] == "moz-firefox"
    prefs = told["firefox_user_prefs"]
    assert prefs == dict(FIREFOX_PREFS)
    assert prefs["network.proxy.failover_direct"] is False
    assert prefs["network.proxy.allow_hijacking_localhost"] is True
    assert prefs["media.peerconnection.enabled"] is False
    assert prefs["network.http.http3.enable"] is False
    assert prefs["network.trr.mode"] == 5

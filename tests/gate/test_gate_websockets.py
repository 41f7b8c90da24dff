"""Declared WebSockets: open in prepare alone, read message by message, and gone before anything is armed. Truth is what
arrived at the site."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from gate_origin import OK, answering
from gate_support import RecordingDoor, rules_for
from websocket_site import Page, WebSocketSite, good
from wsproto.events import CloseConnection

from executor.gate.rules import Kind, Phase, Reason
from flows.effect import WebSocket


def harmless(message: str | bytes) -> bool:
    if isinstance(message, bytes):
        return message == b"\x01"
    return json.loads(message)["type"] in ("here", "typing")


PRESENCE = WebSocket(name="presence", path="/presence", sends=harmless, protocols=("v1.presence", "v2.presence"))
HERE = '{"type": "here"}'
PUBLISH = '{"type": "publish"}'


@pytest.fixture(params=["plain", "tls"])
def anywhere(request, site_authority):
    with WebSocketSite(tls=site_authority.server() if request.param == "tls" else None) as started:
        yield started


@pytest.fixture
def site():
    with WebSocketSite() as started:
        yield started


@pytest.fixture
def open_page(make_gate, connect):
    """A gate with the declaration, and a page that has its WebSocket open through it."""

    async def opened(site: WebSocketSite, **limits):
        gate = await make_gate(site, rules=rules_for(site, websockets=(PRESENCE,)), door=RecordingDoor(), **limits)
        return gate, await Page.open(await connect(gate, site.url, tunnel=True))

    return opened


def entry_of(gate):
    return next(entry for entry in gate.log if entry.kind is Kind.WEBSOCKET)


async def ended(gate) -> None:
    assert await gate.until(lambda: not gate._state.in_flight, 5)


async def test_messages_pass_both_ways_and_are_counted(anywhere, make_gate, connect) -> None:
    anywhere.echo, anywhere.greeting = True, ("welcome",)
    anywhere.answer = lambda key: good(key)[:-2] + b"Sec-WebSocket-Protocol: v2.presence\r\nX-Interlock: forged\r\n\r\n"
    gate = await make_gate(anywhere, rules=rules_for(anywhere, websockets=(PRESENCE,)))
    client = await connect(gate, anywhere.url, tunnel=True)
    page = await Page.open(client, "/presence?room=1", Sec_WebSocket_Protocol="v1.presence, v2.presence")
    assert b"sec-websocket-protocol: v2.presence" in page.head.lower()
    assert b"forged" not in page.head and b"extensions" not in page.head.lower()
    assert await page.hear() == "welcome"
    await page.say(HERE)
    assert await page.hear() == HERE
    await client.send(page.frame('{"type": "ty', last=False) + page.frame('ping"}'))
    heard = str(await page.hear())
    while heard != '{"type": "typing"}':
        heard += str(await page.hear())
    await page.say(b"\x01")
    assert await page.hear() == b"\x01"
    await client.close()
    await ended(gate)

    assert anywhere.arrived[0] == HERE and anywhere.arrived[-1] == b"\x01"
    names = {name.lower() for name, _ in anywhere.handshakes[0]}
    assert b"sec-websocket-extensions" not in names and not any(name.startswith(b"proxy-") for name in names)
    entry = entry_of(gate)
    assert (entry.write, entry.status, entry.messages_out, entry.messages_in) == ("presence", 101, 3, 4)
    assert entry.left_from is not None and entry.left_until is not None
    assert gate.log.writes_left_since(monotonic=0) == (entry,)
    assert '"messages_out": 3' in gate.log.as_json_lines()
    assert "typing" not in gate.log.as_json_lines()


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec_WebSocket_Version": "8"},
        {"Sec_WebSocket_Version": ""},
        {"Sec_WebSocket_Key": "dG9vIHNob3J0"},
        {"Sec_WebSocket_Key": "not base64 at all!"},
        {"Sec_WebSocket_Key": ""},
        {"Upgrade": "h2c"},
        {"Connection": "keep-alive"},
        {"Origin": ""},
        {"Sec_WebSocket_Protocol": "v1.presence, chat"},
        {"lines": ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",)},
        {"lines": ("Sec-WebSocket-Version: 13",)},
        {"lines": ("Content-Length: 3",)},
        {"target": "/presence/else"},
        {"target": "/presence?_method=PUT"},
        {"Host": "elsewhere.example"},
    ],
)
async def test_what_is_no_handshake_for_it_reaches_nothing(changes, site, make_gate, connect) -> None:
    gate = await make_gate(site, rules=rules_for(site, websockets=(PRESENCE,)), body_stall_s=0.2)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await Page.open(await connect(gate, site.url, tunnel=True), **changes)
    assert not site.handshakes
    assert any(entry.reason is not None for entry in gate.log)


@pytest.mark.parametrize("phase", [one for one in Phase if one is not Phase.PREPARE])
async def test_in_every_other_phase_it_is_refused(phase, site, make_gate, connect) -> None:
    gate = await make_gate(site, rules=rules_for(site, websockets=(PRESENCE,)), door=RecordingDoor())
    client = await connect(gate, site.url, tunnel=True)
    gate.enter(phase)
    with pytest.raises(ConnectionError, match=r"X-Interlock: (websocket|phase_closed)"):
        await Page.open(client)
    assert not site.handshakes


async def test_the_effect_is_not_reached_by_a_handshake(site, make_gate, connect) -> None:
    declared = WebSocket(name="all", path="/.*", sends=harmless)
    effect = rules_for(site).effect
    by_link = type(effect)(name="e", method="GET", path="/publish", matches=lambda _: True, material=lambda _: {})
    gate = await make_gate(site, rules=rules_for(site, websockets=(declared,), effect=by_link))
    with pytest.raises(ConnectionError, match="X-Interlock: effect_closed"):
        await Page.open(await connect(gate, site.url, tunnel=True), "/publish")
    twice = rules_for(site, websockets=(declared, PRESENCE))
    gate.enter(Phase.PREPARE, rules=twice)
    with pytest.raises(ConnectionError, match="X-Interlock: ambiguous"):
        await Page.open(await connect(gate, site.url, tunnel=True))
    assert not site.handshakes


@pytest.mark.parametrize(
    "answer",
    [
        lambda key: good("another key"),
        lambda key: good(key).replace(b"Upgrade: websocket", b"Upgrade: h2c"),
        lambda key: good(key).replace(b"Connection: Upgrade", b"Connection: keep-alive"),
        lambda key: good(key)[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        lambda key: good(key)[:-2] + b"Sec-WebSocket-Protocol: v1.presence\r\n\r\n",
        lambda key: b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nsecret",
        lambda key: b"no HTTP at all\r\n\r\n",
        lambda key: OK,
    ],
)
async def test_a_site_that_does_not_shake_hands_properly(answer, site, make_gate, connect) -> None:
    site.answer = answer
    gate = await make_gate(site, rules=rules_for(site, websockets=(PRESENCE,)))
    with pytest.raises(ConnectionError, match="X-Interlock: upstream_failed"):
        await Page.open(await connect(gate, site.url, tunnel=True))
    assert entry_of(gate).reason is Reason.UPSTREAM_FAILED
    assert not entry_of(gate).bytes_out
    assert "secret" not in gate.log.as_json_lines()


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        (PUBLISH, 1008, Reason.NOT_DECLARED),
        (b"\x02", 1008, Reason.NOT_DECLARED),
        ("no JSON", 1008, Reason.NOT_DECLARED),
        ("x" * 3000, 1009, Reason.BODY_UNREADABLE),
    ],
)
async def test_a_message_that_is_not_declared_ends_it_and_does_not_leave(
    message, code, reason, site, open_page
) -> None:
    gate, page = await open_page(site, websocket_message_bytes=2048)
    await page.say(HERE)
    half = len(message) // 2
    await page.client.send(page.frame(message[:half], last=False) + page.frame(message[half:]) + page.frame(HERE))
    assert await page.hear() == code
    await site.until(lambda: bool(site.closes))
    await ended(gate)
    assert site.arrived == [HERE]
    refused = next(entry for entry in gate.log if entry.method == "MESSAGE")
    assert (refused.kind, refused.reason, refused.write, refused.body_size) == (
        Kind.REFUSED,
        reason,
        "presence",
        len(message),
    )
    assert str(message) not in gate.log.as_json_lines()


async def test_frames_that_cannot_be_read_end_it(site, open_page) -> None:
    gate, page = await open_page(site)
    await page.client.send(b"\x81\x02hi")  # not masked, as a page's frames have to be (RFC 6455 section 5.1)
    assert await page.hear() == 1002
    await ended(gate)
    assert not site.arrived


async def test_a_goodbye_of_the_page_carries_no_text_of_its_choice(site, open_page) -> None:
    gate, page = await open_page(site)
    await page.client.send(page.frames.send(CloseConnection(4711, "publish it")))
    assert await page.hear() == 1000
    await site.until(lambda: bool(site.closes))
    assert site.closes == [1000]
    await ended(gate)
    assert "publish it" not in gate.log.as_json_lines()


async def test_a_site_that_ends_it_or_pings(site, open_page) -> None:
    site.answer = lambda key: good(key) + b"\x89\x02hi" + b"\x88\x04\x0f\xa1ok"  # a ping, then a close with 4001
    gate, page = await open_page(site)
    assert await page.hear() == 4001
    await site.until(lambda: site.pongs == 1)
    await ended(gate)


async def test_closing_says_goodbye_and_nothing_leaves_afterwards(anywhere, open_page, connect) -> None:
    gate, page = await open_page(anywhere)
    await page.say(HERE)
    await anywhere.until(lambda: anywhere.arrived == [HERE])
    late = page.frame(HERE) * 3
    await gate.close_websockets()
    assert await page.hear() == 1001
    with contextlib.suppress(ConnectionError):
        await page.client.send(late)
    await anywhere.until(lambda: bool(anywhere.closes))
    assert anywhere.closes == [1001]
    assert anywhere.arrived == [HERE]
    with pytest.raises(ConnectionError, match="X-Interlock: websocket"):
        await Page.open(await connect(gate, anywhere.url, tunnel=True))
    gesture = gate.log.mark("gesture", Phase.ARMED)
    assert gate.log.writes_left_since(monotonic=gesture.monotonic) == ()
    assert entry_of(gate).left_until is not None
    gate.enter(Phase.PREPARE)
    with pytest.raises(ConnectionError, match="X-Interlock: websocket"):
        await Page.open(await connect(gate, anywhere.url, tunnel=True))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 40])
async def test_a_page_that_talks_in_the_very_moment_of_the_change(steps, anywhere, open_page) -> None:
    """Messages are numbered; those that were let out before the change are all that may ever arrive."""
    gate, page = await open_page(anywhere)

    async def talk() -> None:
        with contextlib.suppress(ConnectionError):
            for number in range(5000):
                await page.say(json.dumps({"type": "typing", "number": number}))
                await asyncio.sleep(0)

    talking = asyncio.create_task(talk())
    await anywhere.until(lambda: bool(anywhere.arrived))
    for _ in range(steps):
        await asyncio.sleep(0)
    gate.enter(Phase.ARMED)
    let_out = entry_of(gate).messages_out
    await ended(gate)
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    await anywhere.until(lambda: bool(anywhere.closes) or bool(anywhere.resets))
    assert entry_of(gate).messages_out == let_out
    numbers = [json.loads(one)["number"] for one in anywhere.arrived]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) <= let_out
    gesture = gate.log.mark("gesture", Phase.ARMED)
    assert gate.log.writes_left_since(monotonic=gesture.monotonic) == ()


async def test_what_the_system_holds_for_a_site_that_sleeps_is_dropped(site, open_page) -> None:
    site.asleep = True
    gate, page = await open_page(site)
    message = json.dumps({"type": "typing", "text": "x" * 200_000})

    async def talk() -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await page.say(message)

    talking = asyncio.create_task(talk())
    relay = next(iter(gate._state.websockets))
    for _ in range(1000):
        if relay._site.is_full:
            break
        await asyncio.sleep(0.01)
    assert relay._site.is_full, "neither the site nor the gate takes more"
    seen = entry_of(gate).messages_out
    assert 0 < seen < 100, "what the gate holds is bounded"
    gate.enter(Phase.ARMED)
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    await ended(gate)
    assert entry_of(gate).left_until is not None
    site.wake.set()
    await site.until(lambda: site.resets == 1)
    assert len(site.arrived) < seen


async def test_with_the_gate_the_connection_ends(site, open_page) -> None:
    gate, page = await open_page(site)
    await page.say(HERE)
    await site.until(lambda: site.arrived == [HERE])
    await gate.close()
    await site.until(lambda: bool(site.closes) or bool(site.resets))


async def test_an_ordinary_request_is_none(origin, make_gate, connect) -> None:
    origin.behaviour = answering(OK)
    gate = await make_gate(origin, rules=rules_for(origin, websockets=(PRESENCE,)))
    assert (await (await connect(gate, origin.url)).ask("GET", "/presence")).status == 200
    assert not [entry for entry in gate.log if entry.kind is Kind.WEBSOCKET]

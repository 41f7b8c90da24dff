"""What a site or a page can put into the gate's own texts: nothing of theirs that may be a secret (A11)."""

from __future__ import annotations

import contextlib

import pytest
from gate_origin import answering
from gate_support import RecordingDoor

from executor.gate.rules import Phase
from executor.gate.wire_log import shown_url

FORM = "application/x-www-form-urlencoded"
SECRET = "c0ffee-s3cret"

NOT_HTTP = (
    f"HTTP/1.1 200 OK\r\nSet-Cookie : session={SECRET}\r\n\r\n",
    f"<html><title>{SECRET}</title></html>\r\n\r\n",
    f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n\r\n",
)


@pytest.mark.parametrize("answer", NOT_HTTP)
async def test_an_answer_that_is_not_http_is_not_quoted(answer, origin, make_gate, connect) -> None:
    origin.behaviour = answering(answer.encode())
    door = RecordingDoor(deadline_s=2)
    gate = await make_gate(origin, Phase.ARMED, door=door)
    client = await connect(gate, origin.url)
    with contextlib.suppress(ConnectionError):  # cut where it stopped being HTTP, or answered by the gate
        got = await client.ask("GET", "/page", Connection="close", Sec_Fetch_Dest="document")
        assert SECRET not in got.body.decode()
    client = await connect(gate, origin.url)
    await client.send(
        f"POST {origin.url}/publish HTTP/1.1\r\nHost: {client.host}\r\nContent-Type: {FORM}\r\n"
        "Content-Length: 10\r\n\r\ndo=publish".encode()
    )
    await gate.candidate_seen.wait()
    assert await gate.without_candidates(5)
    assert len(origin.bodies()) == 1
    assert SECRET not in gate.log.as_json_lines()


async def test_a_body_that_is_not_chunked_is_not_quoted(origin, make_gate, connect) -> None:
    gate = await make_gate(origin, Phase.ARMED, door=RecordingDoor())
    client = await connect(gate, origin.url)
    await client.send(
        f"POST {origin.url}/publish HTTP/1.1\r\nHost: {client.host}\r\nContent-Type: {FORM}\r\n"
        f"Transfer-Encoding: chunked\r\n\r\npassword={SECRET}\r\n\r\n".encode()
    )
    assert (await client.answer("POST")).interlock == "smuggling"
    assert not origin.seen
    assert SECRET not in gate.log.as_json_lines()


async def test_a_target_with_a_password_is_not_logged(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    client = await connect(gate, origin.url)
    await client.send(f"GET http://me:{SECRET}@{client.host}/ HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
    assert (await client.answer()).status == 400
    assert SECRET not in gate.log.as_json_lines()


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}@site.example/",
        f"https://{SECRET}@site.example/a?b=c",
        f"https://site.example/?%5Fwpnonc%65={SECRET}",
        f"https://site.example/?a=b&csrf_token={SECRET}",
        f"me:{SECRET}@site.example:443",
    ],
)
def test_what_is_shown_of_an_address(url: str) -> None:
    assert SECRET not in shown_url(url)
    assert shown_url("https://site.example/@user/a@b?q=@") == "https://site.example/@user/a@b?q=@"

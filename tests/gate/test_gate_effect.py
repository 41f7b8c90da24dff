"""The effect at the gate: phases, the door, one request out, and what happens when either side goes away."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from gate_origin import OK, Arrived, Line, answering, never_answering
from gate_support import RecordingDoor, rules_for

from executor.gate import peer
from executor.gate.deny import DenyListener
from executor.gate.path_proof import PREFIX
from executor.gate.port import Candidate, ConnectFailed, ConnectStage, Hang, Refuse, Relay, WriteFailed
from executor.gate.rules import Kind, Phase, Reason

FORM = "application/x-www-form-urlencoded"


async def publish(client, body: bytes = b"do=publish", **headers: str):
    return await client.ask("POST", "/publish", body, Content_Type=FORM, Accept_Encoding="br, zstd, gzip", **headers)


async def send_head(client, origin, begun: bytes) -> None:
    """A candidate of which seven bytes are still to come."""
    head = f"POST {origin.url}/publish HTTP/1.1\r\nHost: {client.host}\r\nContent-Type: {FORM}\r\n"
    await client.send(head.encode() + b"Content-Length: 10\r\n\r\n" + begun)


@pytest.fixture(params=["plain", "tls"])
def site(request, origin, tls_origin):
    return tls_origin if request.param == "tls" else origin


async def test_the_effect_leaves_once_over_a_connection_of_its_own(site, make_gate, connect) -> None:
    door = RecordingDoor()
    gate = await make_gate(site, Phase.ARMED, door=door)
    client = await connect(gate, site.url)
    await client.ask("GET", "/page", Sec_Fetch_Dest="image")
    got = await publish(client)
    assert (got.status, got.body, got.interlock) == (200, b"ok", None)
    assert (await publish(client)).interlock == "budget_spent"
    assert site.bodies() == [b"do=publish"]
    assert site.seen[-1].header("accept-encoding") == "gzip, identity"
    assert (site.seen[-1].connection, site.seen[-1].index) == (2, 0)
    assert door.answers[0].complete
    assert gate.candidate_seen.is_set()
    assert gate.candidates == 0
    effects = [entry for entry in gate.log if entry.kind is Kind.EFFECT]
    assert [(entry.bytes_out, entry.status, entry.reason) for entry in effects] == [
        (True, 200, None),
        (False, 403, "budget_spent"),
    ]
    assert door.candidates[0].sequence == effects[0].sequence


@pytest.mark.parametrize(
    "phase", [Phase.PREPARE, Phase.READ_ONLY, Phase.SHUT, Phase.LOGIN, Phase.REHEARSE, Phase.CLOSED]
)
async def test_outside_armed_no_effect_leaves(phase, site, make_gate, connect) -> None:
    gate = await make_gate(site, door=RecordingDoor())
    client = await connect(gate, site.url)
    gate.enter(phase)
    assert (await publish(client)).interlock in ("effect_closed", "write_in_read_only", "phase_closed")
    assert not site.seen
    assert gate.log.writes_left_since(monotonic=0) == ()


async def test_armed_without_a_door_nothing_leaves(origin, make_gate, connect) -> None:
    client = await connect(await make_gate(origin, Phase.ARMED), origin.url)
    assert (await publish(client)).interlock == "effect_closed"
    assert not origin.seen


async def test_two_candidates_at_the_same_instant(site, make_gate, connect) -> None:
    door = RecordingDoor()
    gate = await make_gate(site, Phase.ARMED, door=door)
    clients = [await connect(gate, site.url) for _ in range(5)]
    answers = await asyncio.gather(*(publish(client) for client in clients))
    assert sorted(got.interlock or "" for got in answers) == ["", *["budget_spent"] * 4]
    assert site.bodies() == [b"do=publish"]
    assert len(door.candidates) == 5


async def test_an_answer_that_is_lost_leaves_the_browser_hanging(site, make_gate, connect) -> None:
    site.behaviour = lambda arrived, line: line.reset()
    door = RecordingDoor()
    gate = await make_gate(site, Phase.ARMED, door=door)
    client = await connect(gate, site.url)
    asking = asyncio.create_task(publish(client))
    await asyncio.wait_for(gate.candidate_seen.wait(), 5)
    assert await gate.without_candidates(5)
    assert door.outcomes == [Hang()]
    await asyncio.sleep(0)
    assert not asking.done()
    gate.let_go()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asking, 5)
    assert site.bodies() == [b"do=publish"]


async def test_the_deadline_of_the_answer_is_the_doors_own(site, make_gate, connect) -> None:
    site.behaviour = never_answering
    door = RecordingDoor(deadline_s=0.2)
    gate = await make_gate(site, Phase.ARMED, door=door)
    client = await connect(gate, site.url)
    asking = asyncio.create_task(publish(client))
    await asyncio.wait_for(gate.candidate_seen.wait(), 5)
    assert await gate.without_candidates(5)
    assert door.answers == [None]
    assert not asking.done()
    gate.let_go()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asking, 5)


async def test_a_browser_that_closes_does_not_stop_the_door(site, make_gate, connect) -> None:
    answer_now = asyncio.Event()
    loop = asyncio.get_running_loop()

    class SlowDoor(RecordingDoor):
        async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
            await answer_now.wait()
            return await super().__call__(candidate)

    door = SlowDoor()
    gate = await make_gate(site, Phase.ARMED, door=door)
    client = await connect(gate, site.url)
    asking = asyncio.create_task(publish(client))
    await asyncio.wait_for(gate.candidate_seen.wait(), 5)
    asking.cancel()
    await client.close()
    loop.call_later(0.05, answer_now.set)
    assert await gate.without_candidates(5)
    assert site.bodies() == [b"do=publish"]
    assert door.answers[0].complete


async def test_closing_the_gate_waits_for_the_door(site, make_gate, connect) -> None:
    go_on = asyncio.Event()
    site.behaviour = answering(OK)

    class SlowDoor(RecordingDoor):
        async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
            await go_on.wait()
            return await super().__call__(candidate)

    door = SlowDoor()
    gate = await make_gate(site, Phase.ARMED, door=door)
    client = await connect(gate, site.url)
    asking = asyncio.create_task(publish(client))
    await asyncio.wait_for(gate.candidate_seen.wait(), 5)
    closing = asyncio.create_task(gate.close())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(closing, 5)
    assert site.bodies() == [b"do=publish"]
    assert door.answers[0].complete
    await asyncio.wait([asking], timeout=5)
    assert asking.done()
    asking.exception()


@pytest.mark.parametrize(
    ("sent", "complete", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", False, b"short"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", False, b"short"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", False, b"until the end"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            False,
            b"ok",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True, b""),
        (b"HTTP/1.1 302 Found\r\nLocation: /done\r\nContent-Length: 0\r\n\r\n", True, b""),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, True, b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, False, b"x" * 1000),
    ],
)
async def test_completeness_of_the_answer(sent, complete, body, origin, make_gate, connect) -> None:
    def once(arrived: Arrived, line: Line) -> None:
        line.send(sent)
        line.close()

    origin.behaviour = once
    door = RecordingDoor()
    gate = await make_gate(origin, Phase.ARMED, door=door, answer_bytes=1000)
    got = await publish(await connect(gate, origin.url))
    assert (door.answers[0].complete, door.answers[0].body) == (complete, body)
    assert got.whole is complete
    assert gate.log.entries[-1].complete is complete


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 O", b"nonsense\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_no_status_line_is_no_answer(sent, origin, make_gate, connect) -> None:
    def once(arrived: Arrived, line: Line) -> None:
        line.send(sent)
        line.close()

    origin.behaviour = once
    door = RecordingDoor()
    gate = await make_gate(origin, Phase.ARMED, door=door)
    asking = asyncio.create_task(publish(await connect(gate, origin.url)))
    await asyncio.wait_for(gate.candidate_seen.wait(), 5)
    assert await gate.without_candidates(5)
    assert door.answers == [None]
    gate.let_go()
    with pytest.raises(ConnectionError):
        await asking


async def test_a_phase_that_changes_before_the_write_proves_nothing_written(site, make_gate, connect) -> None:
    failures: list[WriteFailed] = []
    connected, go_on = asyncio.Event(), asyncio.Event()

    async def door(candidate: Candidate) -> Relay | Refuse | Hang:
        connection = await candidate.connect()
        connected.set()
        await go_on.wait()
        try:
            await connection.write()
        except WriteFailed as error:
            failures.append(error)
        return Refuse(Reason.LEDGER_REFUSED)

    gate = await make_gate(site, Phase.ARMED, door=door)
    asking = asyncio.create_task(publish(await connect(gate, site.url)))
    await asyncio.wait_for(connected.wait(), 5)
    gate.enter(Phase.SHUT)
    go_on.set()
    assert (await asking).interlock == "ledger_refused"
    assert [error.nothing_written for error in failures] == [True]
    assert not site.seen
    assert gate.log.writes_left_since(monotonic=0) == ()


async def test_a_site_that_closes_before_the_write_proves_nothing_written(origin, make_gate, connect) -> None:
    failures: list[WriteFailed] = []

    async def door(candidate: Candidate) -> Relay | Refuse | Hang:
        connection = await candidate.connect()
        await origin.until(lambda: origin.connections == 1)
        gone = asyncio.Event()
        connection._upstream.stream.on_closed.append(gone.set)
        origin.drop_last()
        await asyncio.wait_for(gone.wait(), 5)
        try:
            await connection.write()
        except WriteFailed as error:
            failures.append(error)
        return Refuse(Reason.UPSTREAM_FAILED)

    gate = await make_gate(origin, Phase.ARMED, door=door)
    assert (await publish(await connect(gate, origin.url))).interlock == "upstream_failed"
    assert [error.nothing_written for error in failures] == [True]
    assert not origin.raw


async def test_a_candidate_is_written_once_only(origin, make_gate, connect) -> None:
    failures: list[Exception] = []

    async def door(candidate: Candidate) -> Relay | Refuse | Hang:
        first, second = await candidate.connect(), await candidate.connect()
        await first.write()
        for again in (first.write, second.write, candidate.connect):
            try:
                await again()
            except (WriteFailed, ConnectFailed) as error:
                failures.append(error)
        answer = await first.read_answer(5)
        assert answer is not None
        return Relay(answer)

    gate = await make_gate(origin, Phase.ARMED, door=door)
    assert (await publish(await connect(gate, origin.url))).status == 200
    assert len(failures) == 3
    assert origin.bodies() == [b"do=publish"]


async def test_connect_failures_name_their_stage(origin, make_gate, connect, unused_tcp_port) -> None:
    stages: list[ConnectStage] = []

    async def door(candidate: Candidate) -> Relay | Refuse | Hang:
        try:
            await candidate.connect()
        except ConnectFailed as error:
            stages.append(error.stage)
        return Refuse(Reason.HOST_UNREACHABLE)

    gate = await make_gate(origin, Phase.ARMED, door=door)
    for url in (f"http://127.0.0.1:{unused_tcp_port}", f"https://127.0.0.1:{origin.port}", "http://nowhere.invalid"):
        gate.enter(Phase.ARMED, rules=rules_for(origin, destination_origin=url))
        assert (await publish(await connect(gate, url))).interlock == "host_unreachable"
    assert stages == [ConnectStage.CONNECT, ConnectStage.TLS, ConnectStage.RESOLVE]
    assert not origin.seen


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_door_that_fails_is_told_apart_by_what_was_written(when, origin, make_gate, connect, caplog) -> None:
    async def door(candidate: Candidate) -> Relay | Refuse | Hang:
        connection = await candidate.connect()
        if when == "after":
            await connection.write()
        raise RuntimeError("a defect")

    gate = await make_gate(origin, Phase.ARMED, door=door)
    asking = asyncio.create_task(publish(await connect(gate, origin.url)))
    if when == "before":
        assert (await asking).interlock == "door_failed"
    else:
        await asyncio.wait_for(gate.candidate_seen.wait(), 5)
        assert await gate.without_candidates(5)
        gate.let_go()
        with pytest.raises(ConnectionError):
            await asking
    assert "the door failed" in caplog.text


async def test_a_candidate_counts_while_its_body_arrives(origin, make_gate, connect) -> None:
    gate = await make_gate(origin, Phase.ARMED, door=RecordingDoor())
    client = await connect(gate, origin.url)
    await send_head(client, origin, b"do=")
    assert await gate.until(lambda: gate.candidates == 1, 5)
    assert not gate.candidate_seen.is_set()
    assert not await gate.quiet(0.05)
    await client.send(b"publish")
    assert (await client.answer("POST")).status == 200
    assert await gate.quiet(5)
    assert gate.candidates == 0


async def test_a_body_that_ends_after_the_phase_is_refused(origin, make_gate, connect) -> None:
    gate = await make_gate(origin, Phase.ARMED, door=RecordingDoor())
    client = await connect(gate, origin.url)
    await send_head(client, origin, b"do=")
    assert await gate.until(lambda: gate.candidates == 1, 5)
    gate.enter(Phase.SHUT)
    await client.send(b"publish")
    assert (await client.answer("POST")).interlock == "effect_closed"
    assert not origin.seen


async def test_supporting_writes_are_told_before_they_leave(origin, make_gate, connect) -> None:
    told: list[tuple[str, int]] = []
    refuse = False

    async def before_write(request, write) -> None:
        told.append((write.name, len(origin.seen)))
        if refuse:
            raise RuntimeError("the ledger is gone")

    gate = await make_gate(origin, door=RecordingDoor(), before_write=before_write)
    client = await connect(gate, origin.url)
    draft = {"Content_Type": FORM}
    assert (await client.ask("POST", "/publish", b"do=draft", **draft)).status == 200
    assert told == []
    gate.enter(Phase.ARMED)
    assert (await client.ask("POST", "/publish", b"do=draft", **draft)).status == 200
    assert told == [("draft", 1)]
    refuse = True
    assert (await client.ask("POST", "/publish", b"do=draft", **draft)).interlock == "ledger_refused"
    assert len(origin.seen) == 2
    assert [carried.write.name for carried in gate.carried] == ["draft", "draft"]
    assert [carried.answer.body for carried in gate.carried] == [b"ok", b"ok"]


async def test_a_write_decided_under_an_old_phase_is_decided_again(origin, make_gate, connect) -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def before_write(request, write) -> None:
        waiting.set()
        await go_on.wait()

    gate = await make_gate(origin, Phase.ARMED, door=RecordingDoor(), before_write=before_write)
    client = await connect(gate, origin.url)
    asking = asyncio.create_task(client.ask("POST", "/publish", b"do=draft", Content_Type=FORM))
    await asyncio.wait_for(waiting.wait(), 5)
    gate.enter(Phase.SHUT)
    go_on.set()
    assert (await asking).interlock == "write_after_shut"
    assert not origin.seen
    assert "decided again" in gate.log.entries[-1].note


async def test_trailing_writes_leave_only_while_their_window_is_open(origin, make_gate, connect) -> None:
    gate = await make_gate(origin, Phase.SHUT)
    client = await connect(gate, origin.url)
    assert (await client.ask("POST", "/unlock", b"")).interlock == "write_after_shut"
    gate.open_trailing(30)
    mark = gate.log.mark("answer", gate.phase)
    assert (await client.ask("POST", "/unlock", b"")).status == 200
    assert (await publish(client)).interlock == "effect_closed"
    gate.enter(Phase.SHUT)
    assert (await client.ask("POST", "/unlock", b"")).interlock == "write_after_shut"
    assert [one.target for one in origin.seen] == ["/unlock"]
    assert [entry.write for entry in gate.log.writes_left_since(monotonic=mark.monotonic)] == ["unlock"]


async def test_streams_are_cut_when_the_phase_changes_and_other_answers_end(origin, make_gate, connect) -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(arrived: Arrived, line: Line) -> None:
        kind = b"text/event-stream" if arrived.target == "/events" else b"text/plain"
        line.send(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
        line.send(b"1\r\nb\r\n0\r\n\r\n")

    origin.behaviour = slow
    gate = await make_gate(origin)
    events, page = await connect(gate, origin.url), await connect(gate, origin.url)
    for client, target in ((events, "/events"), (page, "/page")):
        await client.send(f"GET {origin.url}{target} HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
    first = [await events.reader.readuntil(b"1\r\na\r\n"), await page.reader.readuntil(b"1\r\na\r\n")]
    gate.enter(Phase.READ_ONLY)
    assert all(b"200 OK" in head for head in first)
    assert await events.at_end()
    go_on.set()
    assert await page.reader.readuntil(b"0\r\n\r\n") == b"1\r\nb\r\n0\r\n\r\n"


async def test_views_read_what_they_list_within_their_budget(origin, make_gate, connect) -> None:
    gate = await make_gate(origin, Phase.READ_ONLY, rules=rules_for(origin, read_budget=2))
    client = await connect(gate, origin.url)
    page = {"Sec_Fetch_Dest": "document"}
    assert (await client.ask("GET", "/list", **page)).status == 200
    assert (await client.ask("GET", "/other", **page)).interlock == "unlisted_document"
    assert (await client.ask("GET", "/x.png", Sec_Fetch_Dest="image")).status == 200
    assert (await client.ask("GET", "/list", **page)).status == 200
    assert (await client.ask("GET", "/list", **page)).interlock == "read_budget_spent"
    assert (await client.ask("PUT", "/upload", b"x")).interlock == "write_in_read_only"
    assert [one.target for one in origin.seen] == ["/list", "/x.png", "/list"]


async def test_the_path_proof_is_answered_once_and_never_forwarded(site, make_gate, connect) -> None:
    gate = await make_gate(site)
    url = gate.expect_probe(site.url)
    text = gate.probe_answer(url)
    target = url.removeprefix(site.url)
    client = await connect(gate, site.url)
    assert (await client.ask("POST", target, b"")).interlock == "probe_unknown"
    assert not gate.proved(site.url)
    got = await client.ask("GET", target, Sec_Fetch_Dest="document")
    assert (got.status, got.body.decode()) == (200, text)
    assert gate.proved(site.url)
    assert (await client.ask("GET", target)).interlock == "probe_unknown"
    assert (await client.ask("GET", PREFIX + "0" * 32)).interlock == "probe_unknown"
    assert not site.raw


async def test_the_session_is_that_of_the_last_document(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    client = await connect(gate, origin.url)
    assert gate.session_digest(origin.url, ["sid*"]) is None
    await client.ask("GET", "/", Sec_Fetch_Dest="document", Cookie="sid=1; theme=dark")
    first = gate.session_digest(origin.url, ["sid*"])
    await client.ask("GET", "/api", Sec_Fetch_Dest="empty", Cookie="sid=2")
    assert first == gate.session_digest(origin.url, ["sid*"]) != None  # noqa: E711
    await client.ask("GET", "/", Sec_Fetch_Dest="document", Cookie="sid=2")
    assert gate.session_digest(origin.url, ["sid*"]) not in (first, None)
    assert gate.session_digest(origin.url, ["other"]) is None


async def test_the_log_keeps_no_secrets(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    client = await connect(gate, origin.url)
    await client.ask("GET", "/?_wpnonce=hidden1&page=2", Cookie="sid=hidden2", Authorization="Bearer hidden3")
    await client.ask("POST", "/nowhere?token=hidden4", b"password=hidden5", Content_Type=FORM)
    lines = gate.log.as_json_lines()
    assert "hidden" not in lines
    assert "page=2" in lines
    assert len(lines.splitlines()) == 2


async def test_other_users_processes_are_shut_out(origin, make_gate, connect, monkeypatch) -> None:
    gate = await make_gate(origin)
    assert (await (await connect(gate, origin.url)).ask("GET", "/")).status == 200
    monkeypatch.setattr(peer, "uid_of", lambda *_: os.geteuid() + 1)
    client = await connect(gate, origin.url)
    with pytest.raises(ConnectionError):
        await client.ask("GET", "/")
    assert len(origin.seen) == 1


async def test_uid_of_reads_the_kernels_table() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert peer.uid_of(client.getsockname(), server.getsockname()) == os.geteuid()
        assert peer.uid_of(("127.0.0.1", 1), server.getsockname()) is None
    if socket.has_dualstack_ipv6():
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as client:
            client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
            assert peer.uid_of(("127.0.0.1", client.getsockname()[1]), server.getsockname()) == os.geteuid()


async def test_the_deny_listener_refuses_and_counts(origin) -> None:
    async with DenyListener() as deny:
        port = int(deny.address.rpartition(":")[2])
        for line in (f"CONNECT 127.0.0.1:{origin.port}", f"GET {origin.url}/"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{origin.port}\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
            writer.close()
            await writer.wait_closed()
        assert deny.attempts == 2
        assert deny.hosts == {f"127.0.0.1:{origin.port}": 2}
    assert not origin.raw


async def test_closing_ends_whatever_is_open(origin, make_gate, connect) -> None:
    origin.behaviour = never_answering
    gate = await make_gate(origin)
    idle = await connect(gate, origin.url, tunnel=True)
    asking = asyncio.create_task((await connect(gate, origin.url)).ask("GET", "/"))
    await origin.until(lambda: len(origin.seen) == 1)
    await asyncio.wait_for(gate.close(), 5)
    assert await idle.at_end()
    with pytest.raises(ConnectionError):
        await asking
    with pytest.raises(ConnectionError):
        await connect(gate, origin.url)

"""A run at the moment of its release, without a browser: the real ledger, the real gate and door, and a site on a bare
socket that keeps its own record. The requests that a browser would send are written by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import urlencode

from child import Shape
from desk import PERSON
from sqlalchemy import Connection, Engine, event

from evidence.store import FileStore
from executor.browser.identities import Identities
from executor.gate.certificates import CertificateAuthority, UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.port import Candidate, Hang, Refuse, Relay
from executor.gate.port import Connection as Wire
from executor.gate.proxy import Gate
from executor.gate.rules import Phase
from executor.ledger.ids import new_id
from executor.ledger.thread import AsyncLedger
from executor.model.operation import Attempt, Operation
from executor.one_shot import after, claiming
from executor.one_shot.release import Release
from executor.one_shot.run import Run, Services, StepEvent
from executor.service import Executor
from executor.settings import Settings
from flows import flow as vocabulary
from flows.flow import Flow
from flows.playground import Announcement
from flows.wire import Answer, OutgoingRequest

PUBLISHED = b"HTTP/1.1 302 Found\r\nLocation: /form/done?item=7\r\nContent-Length: 0\r\n\r\n"
TITLE, BODY = "Office closed on Friday", "We are back on Monday."


@dataclass
class Site:
    """Listens on 127.0.0.1 and answers a POST with `answer`. `posts` is the ground truth: the bodies of whole POSTs in
    the order of their arrival; `written` counts every byte that came on a connection which was not a GET."""

    answer: bytes = PUBLISHED
    posts: list[bytes] = field(default_factory=list)
    written: int = 0

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening: from here the host is dead."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET "):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            else:
                self.written += len(head)
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.written += len(body)
                self.posts.append(body)
                writer.write(self.answer)
            await writer.drain()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@dataclass(frozen=True)
class Got:
    """What the browser got. `interlock` is the gate's own reason where the gate answered; `status` is None where the
    connection ended without an answer."""

    status: int | None
    interlock: str | None = None


@dataclass
class Bench:
    """One claimed, armed run. `at` holds what is done at a moment of the release, on the event loop."""

    executor: Executor
    site: Site
    operation: Operation
    flow: Flow[Any]
    services: Services
    at: dict[str, Callable[[], None]]
    heard: list[str]
    run: Run = field(init=False)

    @property
    def ledger(self) -> AsyncLedger:
        return self.executor.ledger

    @property
    def release(self) -> Release:
        assert self.run.release is not None
        return self.run.release

    @property
    def gate(self) -> Gate:
        assert self.run.gate is not None
        return self.run.gate

    async def ask(self, method: str, target: str, body: bytes = b"", *, session: str = "s3cret") -> Got:
        """One request through the gate, over a connection of its own."""
        host, port = self.gate.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(
                f"{method} {self.site.url}{target} HTTP/1.1\r\nHost: 127.0.0.1:{self.site.port}\r\n"
                f"Cookie: pg_session={session}\r\nSec-Fetch-Dest: document\r\nConnection: close\r\n"
                f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        head = answer.partition(b"\r\n\r\n")[0].decode()
        if not head:
            return Got(None)
        named = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        return Got(int(head.split()[1]), named.get("x-interlock"))

    async def publish(self, *, title: str = TITLE, session: str = "s3cret") -> Got:
        """What the composer sends when its button is pressed."""
        return await self.ask("POST", "/form/publish", form(title), session=session)

    async def judged(self) -> Operation:
        """Wait until what is inside the door has ended, then close and judge the attempt as step 16 does."""
        await self.release.settled()
        await after.judge(self.run)
        verification = await self.ledger.verify_all()
        assert verification.flaws == ()
        return self.run.operation

    async def kinds(self) -> list[str]:
        return [one.kind for one in await self.ledger.events(self.operation.id)]

    async def until(self, moment: datetime) -> None:
        """Wait for the database's clock, which is the one that decides."""
        left = (moment - await self.ledger.now()).total_seconds()
        await asyncio.sleep(max(left, 0) + 0.01)
        assert await self.ledger.now() >= moment


def shape(operation: Operation) -> Shape:
    return operation.state.dispatch, operation.state.transmission, operation.state.outcome


def form(title: str = TITLE) -> bytes:
    return urlencode({"csrf": "t0ken", "title": title, "body": BODY}).encode()


@asynccontextmanager
async def bench(
    folder: Path,
    *,
    valid_for_s: float = 600,
    deadline: datetime | None = None,
    effect: Mapping[str, Any] | None = None,
    read: Callable[[OutgoingRequest, Answer], Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """An operation that is proposed, approved, claimed, and armed. `effect` changes fields of the flow's effect, `read`
    is another reading of answers, `limits` are the gate's."""
    given = {"connect_s": 5.0, "answer_s": 5.0, "minimum_free_bytes": 1024, **settings}
    own = Settings(home=folder / "home", key_folder=folder / "keys", **given)
    heard: list[str] = []
    at: dict[str, Callable[[], None]] = {}

    def hear(step: StepEvent) -> None:
        heard.append(step.moment)
        at.get(step.moment, int)()

    async with Site() as site, Executor(own) as executor:
        proposed = await executor.propose(
            flow="playground-form",
            destination=site.url,
            account="editor",
            payload={"title": TITLE, "body": BODY},
            task="task",
            by=PERSON,
            deadline=deadline,
        )
        operation = proposed.operation
        await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, valid_for_s=valid_for_s)
        flow = executor.flows.get("playground-form")
        if effect:
            flow.effect = replace(flow.effect, **effect)
        if read:
            flow.contract = replace(flow.contract, read_answer=read)
        services = Services(
            settings=own,
            ledger=executor.ledger,
            store=FileStore(own.evidence_folder / "blobs", minimum_free_bytes=1024),
            identities=Identities(own.identities_folder, own.key_folder),
            # No browser: nothing here asks for more than whether it is gone.
            host=SimpleNamespace(authority=CertificateAuthority(), lost=asyncio.Event()),  # type: ignore[arg-type]
            routes=Routes.straight(UpstreamTrust(())),
            listener=hear,
        )
        made = Bench(executor, site, operation, flow, services, at, heard)
        made.run = await _claimed(made, Limits(**(limits or {})))
        try:
            yield made
        finally:
            made.gate.let_go()
            await made.gate.close()


async def _claimed(made: Bench, limits: Limits) -> Run:
    """Steps 2 to 10, but for the browser."""
    operation, flow, ledger = made.operation, made.flow, made.executor.ledger
    run = Run(
        services=made.services,
        operation=operation,
        flow=flow,
        binding=operation.flow,
        intent=vocabulary.Intent(
            task="task",
            action=flow.action,
            destination=made.site.url,
            account="editor",
            payload=Announcement(title=TITLE, body=BODY),
            reference=operation.id,
        ),
    )
    made.run = run
    run.lease = await ledger.lease(operation.account_key, holder=run.id, ttl_s=made.services.settings.lease_s)
    run.gate = Gate(
        authority=made.services.host.authority,
        rules=run.composer_rules(),
        phase=Phase.PREPARE,
        routes=made.services.routes,
        door=None,
        log=run.log,
        before_write=None,
        limits=limits,
    )
    await run.gate.start()
    assert (await made.ask("GET", "/form/new")).status == 200
    run.session_digest = run.gate.session_digest(made.site.url, flow.session_cookies)
    claimed = await ledger.claim(
        operation.id, attempt=new_id("at"), lease=run.lease, flow=run.binding, by=run.actor, data={"run": run.id}
    )
    assert isinstance(claimed, Attempt), claimed
    run.claimed = claimed
    await claiming.arm(run)
    await ledger.gesture(claimed.id, by=run.actor)
    run.gesture_at = run.log.mark("gesture", Phase.ARMED).monotonic
    return run


# -- getting in between --------------------------------------------------------------------------------------------


@contextmanager
def at_commit(do: Callable[[Connection], None], *, number: int = 1) -> Iterator[None]:
    """Call `do` on the ledger's thread when the given COMMIT from now on is about to be sent."""
    numbers = itertools.count(1)

    def hook(connection: Connection) -> None:
        if next(numbers) == number:
            do(connection)

    event.listen(Engine, "commit", hook)
    try:
        yield
    finally:
        event.remove(Engine, "commit", hook)


def really_commit(connection: Connection) -> None:
    """COMMIT, without SQLAlchemy's knowledge: for a commit that takes effect and is reported as failed."""
    dbapi = connection.connection.dbapi_connection
    assert dbapi is not None
    dbapi.commit()


class Held:
    """A door in front of the release that stops it inside one of its awaits: connect, commit, write or answer.

    With `error` it fails there instead. `caller` is the task that called the release first. `entered` is set once it is
    inside; `go_on` lets it continue.
    """

    def __init__(self, release: Release, at: str, *, error: Exception | None = None) -> None:
        self._release = release
        self._error = error
        self.at = at
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self._commit_may_go_on = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.caller: asyncio.Future[Relay | Refuse | Hang] | None = None

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
        caller = asyncio.ensure_future(self._release(_HeldCandidate(candidate, self)))
        self.caller = self.caller or caller
        await asyncio.wait([caller])
        if not caller.cancelled():
            return caller.result()
        await self._release.settled()
        return Hang()

    async def stop_at(self, point: str) -> None:
        if point == self.at:
            if self._error is not None:
                raise self._error
            self.entered.set()
            await self.go_on.wait()

    def stop_commit(self, _connection: Connection) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._commit_may_go_on.wait(20)

    def let_go(self) -> None:
        self.go_on.set()
        self._commit_may_go_on.set()


class _HeldCandidate:
    def __init__(self, candidate: Candidate, held: Held) -> None:
        self._candidate = candidate
        self._held = held

    @property
    def request(self) -> OutgoingRequest:
        return self._candidate.request

    @property
    def sequence(self) -> int:
        return self._candidate.sequence

    async def connect(self) -> Wire:
        await self._held.stop_at("connect")
        return _HeldConnection(await self._candidate.connect(), self._held)


class _HeldConnection:
    def __init__(self, connection: Wire, held: Held) -> None:
        self._connection = connection
        self._held = held

    async def write(self) -> None:
        await self._held.stop_at("write")
        await self._connection.write()

    async def read_answer(self, deadline_s: float) -> Answer | None:
        await self._held.stop_at("answer")
        return await self._connection.read_answer(deadline_s)

    def close(self) -> None:
        self._connection.close()

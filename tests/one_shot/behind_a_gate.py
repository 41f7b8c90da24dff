"""A real gate in front of a real browser, without the rest of a run: for what one phase lets out and what it refuses.

Ground truth is the playground's record; what the gate says about a request is its wire log.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Page

from executor.browser.finding import find_browser
from executor.browser.sessions import BrowserHost, Session
from executor.gate.certificates import UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.port import Candidate, EffectDoor, Hang, Refuse, Relay
from executor.gate.proxy import Gate
from executor.gate.rules import Kind, Phase, Reason, Rules
from executor.gate.wire_log import Entry, WireLog
from flows.playground import PlaygroundForm
from playground.process import Playground

SESSION = "pg_session"


class OneEffect:
    """A door that lets the first candidate out and no other, as the release does, without a ledger behind it."""

    def __init__(self, answer_s: float = 10.0) -> None:
        self._budget = 1
        self._answer_s = answer_s

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
        if not self._budget:
            return Refuse(Reason.BUDGET_SPENT)
        self._budget -= 1
        connection = await candidate.connect()
        try:
            await connection.write()
            answer = await connection.read_answer(self._answer_s)
        finally:
            connection.close()
        return Hang() if answer is None or not answer.complete else Relay(answer)


@dataclass
class Site:
    """The playground over one scheme, and an account of it."""

    playground: Playground
    tls: bool = False
    cookie: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.cookie = {
            "name": SESSION,
            "value": self.playground.truth.open_session("editor"),
            "domain": urlsplit(self.url).hostname,
            "path": "/",
            "expires": -1,
            "httpOnly": True,
            "secure": self.tls,
            "sameSite": "Lax",
        }

    @property
    def url(self) -> str:
        return self.playground.tls if self.tls else self.playground.plain

    async def sign_in(self, context: BrowserContext) -> None:
        """For a context that is not ours: ours is opened with the cookie."""
        await context.add_cookies([dict(self.cookie)])  # type: ignore[list-item] # as the driver takes them

    def rules(self, **changes: Any) -> Rules:
        """Those of the native form, and of a view that lists what the flow's own does."""
        given = Rules(
            destination_origin=self.url,
            effect=PlaygroundForm.effect,
            opens=tuple(pattern for view in PlaygroundForm.views() for pattern in view.opens),
        )
        return replace(given, **changes)

    def gate(
        self, host: BrowserHost, phase: Phase, *, rules: Rules | None = None, door: EffectDoor | None = None
    ) -> Gate:
        return Gate(
            authority=host.authority,
            rules=rules or self.rules(),
            phase=phase,
            routes=Routes.straight(UpstreamTrust((self.playground.ca,))),
            door=door,
            log=WireLog(),
            before_write=None,
            limits=Limits(),
        )

    @asynccontextmanager
    async def visit(self, host: BrowserHost, gate: Gate) -> AsyncIterator[Session]:
        """A context of the account's behind a gate."""
        session = await host.open(gate, cookies=[self.cookie])
        session.page.set_default_timeout(20_000)
        try:
            yield session
        finally:
            await session.close()

    @asynccontextmanager
    async def behind(
        self, host: BrowserHost, phase: Phase, *, rules: Rules | None = None, door: EffectDoor | None = None
    ) -> AsyncIterator[tuple[Gate, Session]]:
        """A gate and a context behind it."""
        async with self.gate(host, phase, rules=rules, door=door) as gate, self.visit(host, gate) as session:
            yield gate, session


def refused(gate: Gate, target: str = "") -> list[Entry]:
    """What was refused of requests whose path begins so."""
    return [
        entry for entry in gate.log if entry.kind is Kind.REFUSED and urlsplit(entry.url).path.startswith(target or "/")
    ]


async def another_refused(gate: Gate, target: str, *, beyond: int = 0, wait_s: float = 20.0) -> None:
    """Wait until more than `beyond` requests whose path begins so have been refused."""
    met = await gate.until(lambda: len(refused(gate, target)) > beyond, wait_s)
    assert met, gate.log.as_json_lines()


async def compose(page: Page, url: str, *, title: str = "T", body: str = "one\ntwo") -> None:
    await page.goto(url)
    await page.get_by_label("Title").fill(title)
    await page.get_by_label("Body").fill(body)


def plain_launch() -> dict[str, Any]:
    """Launching the same browser as anybody would: the driver's own switches and nothing of ours."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return {"executable_path": str(find_browser().path), "args": [*sandbox, "--disable-gpu"]}


@contextmanager
def stun_server() -> Iterator[socket.socket]:
    """A UDP socket on 127.0.0.1 to which a page may be sent; `datagrams` says what came."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        yield listening


def datagrams(listening: socket.socket) -> int:
    count = 0
    while True:
        try:
            listening.recv(2048)
        except BlockingIOError:
            return count
        count += 1

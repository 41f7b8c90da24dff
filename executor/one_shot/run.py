"""The state of one run, and the ways to leave it. The steps work on a `Run`; nothing else does.

A run halts (`Halted`, `RefusedRun`) only before the claim. After it, every step ends on its own terms and the run goes
through to its receipt.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from playwright.async_api import Page

from evidence.manifest import Manifest
from evidence.redaction import Redactor
from evidence.store import FileStore
from executor.browser.identities import Identities
from executor.browser.sessions import BrowserHost, Session
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.proxy import Gate
from executor.gate.rules import Rules
from executor.gate.wire_log import WireLog
from executor.ledger.thread import AsyncLedger
from executor.model.admission import Refused
from executor.model.ending import EffectRequest, Looked
from executor.model.operation import Actor, ActorKind, Attempt, FlowBinding, Lease, Operation
from executor.model.reasons import Halt, NotSent, Unsure
from executor.model.step_table import STEPS
from executor.model.verdict import Look, Verdict
from executor.one_shot.control import Pinned
from executor.one_shot.release import Release
from executor.one_shot.trouble import SiteTrouble
from executor.payload_files import PayloadFiles
from executor.receipts.words import Payloadless
from executor.settings import Settings
from flows.effect import Contract
from flows.flow import Flow, Intent
from flows.pages import ComposerPage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepEvent:
    """What a listener hears: "begin", a moment of `executor.model.step_table`, "done", "halted" (the run goes no
    further) or "failed" (it goes on without it), the last two with a detail."""

    number: int
    name: str
    moment: str
    operation: str
    detail: str = ""


Listener = Callable[[StepEvent], None]


def tell(listener: Listener, event: StepEvent) -> None:
    """Call the listener, synchronously, on the event loop. It is the caller's own code, and often a terminal that may
    be closed: whatever it raises is logged and goes no further. Between `released` and the first byte, an exception
    would leave an effect unsent that the record calls possible; after the claim, an attempt without its verdict."""
    try:
        listener(event)
    except Exception as error:  # noqa: BLE001  named above
        _log.warning("the listener failed at step %d, %s: %s", event.number, event.moment, type(error).__name__)


class AuthorEnded(Exception):
    """A flow author's code tried to end more than itself: it raised what would cancel the run or end the program."""


T = TypeVar("T")

_CANCELLED_S = 1.0
"""How long an author's code may take to let go once its time is over."""


async def of_the_author(code: Awaitable[T], within_s: float) -> T:
    """Await a flow author's code. Raises what it raises, as an `Exception` whatever it is, and TimeoutError. Code that
    does not let go when its time is over is left behind, cancelled: it has only a page, which is closed under it."""

    async def contained() -> T:
        try:
            return await code
        except SystemExit as error:  # would end the event loop, and with it every step that is still to come
            raise AuthorEnded("SystemExit") from error

    task = asyncio.ensure_future(contained())
    try:
        await asyncio.wait([task], timeout=within_s)
        if task.cancelled():
            raise AuthorEnded("CancelledError")
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.add_done_callback(_unheard)
            task.cancel()
            await asyncio.wait([task], timeout=_CANCELLED_S)
    raise TimeoutError


def _unheard(task: asyncio.Task[Any]) -> None:
    """What code raises whose time was over is nobody's news; asked for here, so that the event loop does not report
    it."""
    if not task.cancelled():
        task.exception()


class Halted(Exception):
    """Stop before the claim; nothing was dispatched. `detail` is for a person and holds no payload."""

    def __init__(self, reason: Halt, detail: str = "") -> None:
        super().__init__(f"{reason.sentence} {detail}".strip())
        self.reason = reason
        self.detail = detail


class RefusedRun(Exception):
    """Admission said no; nothing was dispatched."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


@dataclass(frozen=True)
class Services:
    """What a run uses and does not own."""

    settings: Settings
    ledger: AsyncLedger
    store: FileStore
    identities: Identities
    host: BrowserHost
    routes: Routes
    listener: Listener | None

    @property
    def limits(self) -> Limits:
        """The gate's limits, as the settings of this run have them."""
        return replace(gate_limits(self.settings), ports=self.host.gate_ports())


def gate_limits(settings: Settings) -> Limits:
    """The limits of a gate under these settings."""
    return Limits(
        body_bytes=settings.largest_body_bytes,
        body_s=settings.body_s,
        connect_s=settings.connect_s,
        tls_s=settings.connect_s,
        proxy_s=settings.connect_s,
    )


def new_run_id() -> str:
    """The id of a run, under which it holds its account's lease."""
    return f"run_{secrets.token_hex(8)}"


@dataclass
class Run:
    """One run of one operation. Fields are filled by the steps in their order; None means not yet."""

    services: Services
    operation: Operation
    flow: Flow[Any]
    binding: FlowBinding
    intent: Intent[Any]
    id: str = field(default_factory=new_run_id)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    redactor: Redactor = field(default_factory=Redactor)

    step: int = 0
    step_name: str = ""
    lease: Lease | None = None
    log: WireLog = field(default_factory=WireLog)
    look_log: WireLog = field(default_factory=WireLog)
    gate: Gate | None = None
    session: Session | None = None
    page: Page | None = None
    """The page that the composer is in: that of the flow's control, once it is named (see `composing`)."""
    pinned: Pinned | None = None
    session_digest: str | None = None
    message_before: str | None = None
    manifest: Manifest | None = None
    sent_before: bool = False
    """An earlier attempt of this operation may have been sent; the provider's key is what makes this one safe."""
    first_baseline: frozenset[str] | None = None
    """With `sent_before`: the ids that were there before anything of the operation can have left."""
    baseline: frozenset[str] | None = None
    looked: list[Looked] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    claimed: Attempt | None = None
    release: Release | None = None
    effect: EffectRequest | None = None
    gesture_at: float | None = None
    gesture_error: str = ""
    control_changed: str = ""
    not_sent: NotSent | None = None
    """Why no gesture was made, or why nothing left, where a step knows it directly."""
    unsure: Unsure | None = None
    verdict: Verdict | None = None
    failures: list[str] = field(default_factory=list)
    """Steps after the claim that could not be carried out, by number and kind of error."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody wants this run to end: it halts before the claim, and before the gesture nothing is sent."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """The program is ending: a run halts before the claim, and past it goes through."""
    trouble: SiteTrouble = field(default_factory=SiteTrouble)

    @property
    def is_to_halt(self) -> bool:
        """Whether it goes no further unless it has claimed."""
        return self.cancelled.is_set() or self.draining.is_set()

    @property
    def actor(self) -> Actor:
        """The run itself, as the author of what it records."""
        return Actor(ActorKind.EXECUTOR, self.id)

    @property
    def contract(self) -> Contract:
        return self.flow.contract

    @property
    def site(self) -> str:
        """The origin under which the account's session is kept."""
        return self.intent.origin

    @property
    def proof_cookies(self) -> tuple[str, ...]:
        """By which of the session cookies page and effect are compared."""
        return self.flow.proof_cookies or self.flow.session_cookies

    @property
    def effect_window_s(self) -> float:
        given = self.services.settings.effect_window_s
        return self.contract.effect_window_s if given is None else given

    @property
    def answer_s(self) -> float:
        given = self.services.settings.answer_s
        return self.contract.answer_deadline_s if given is None else given

    def composer_rules(self) -> Rules:
        """What the composer's context may send: the effect, and the writes that go with it."""
        flow = self.flow
        return Rules(
            destination_origin=self.intent.origin,
            effect=flow.effect,
            supporting=flow.supporting,
            trailing=flow.trailing,
            websockets=flow.websockets,
            override_names=flow.override_names,
        )

    @property
    def composing(self) -> Page:
        """The page that the composer is in; the context's first one until the flow has named its control."""
        assert self.session is not None
        return self.page or self.session.page

    def composer(self) -> ComposerPage:
        files = PayloadFiles(self.services.settings.payload_files_folder)
        return ComposerPage(self.composing, self.intent.origin, files.content)

    def clean(self, text: str) -> str:
        """The text without what is in the payload (A11): pages and flow authors' code put it into what they say."""
        return Payloadless.of(self.operation.intent)(text)

    def begin(self, number: int) -> None:
        """Enter a step."""
        self.step, self.step_name = number, STEPS[number - 1].name
        self.report("begin")

    def report(self, moment: str, detail: str = "") -> None:
        """Tell the listener (see `tell`)."""
        self.report_as(self.step, self.step_name, moment, detail)

    def report_as(self, number: int, name: str, moment: str, detail: str = "") -> None:
        if self.services.listener is not None:
            tell(self.services.listener, StepEvent(number, name, moment, self.operation.id, self.clean(detail)))

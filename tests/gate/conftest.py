"""Sites and gates for the gate's tests. Everything is on loopback and ends with its test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
from gate_origin import Client, Origin, TestAuthority

from executor.gate.certificates import CertificateAuthority, UpstreamTrust
from executor.gate.limits import Limits
from executor.gate.port import Candidate, Hang, Refuse, Relay
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Rules
from executor.gate.wire_log import WireLog
from flows.effect import Effect, Write
from flows.wire import OutgoingRequest


@pytest.fixture(scope="session")
def gate_authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="session")
def site_authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def make_origin() -> Iterator[Callable[..., Origin]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Origin(**options))


@pytest.fixture
def origin(make_origin: Callable[..., Origin]) -> Origin:
    return make_origin()


@pytest.fixture
def tls_origin(make_origin: Callable[..., Origin], site_authority: TestAuthority) -> Origin:
    return make_origin(tls=site_authority.server())


def rules_for(origin: Origin, **changes: Any) -> Rules:
    """The effect is a POST to /publish that says so; drafts are supporting, /unlock is trailing."""

    def says(word: str) -> Callable[[OutgoingRequest], bool]:
        return lambda request: request.form.get("do") == word

    values: dict[str, Any] = {
        "destination_origin": origin.url,
        "effect": Effect(
            name="published", method="POST", path="/publish", matches=says("publish"), material=lambda request: {}
        ),
        "supporting": (
            Write(
                name="draft",
                method="POST",
                path="/publish",
                matches=says("draft"),
                may_cause_effect=False,
                item=lambda request, answer: None,
            ),
            Write(name="upload", method="PUT", path="/upload", matches=lambda _: True, may_cause_effect=False),
        ),
        "trailing": (
            Write(name="unlock", method="POST", path="/unlock", matches=lambda _: True, may_cause_effect=False),
        ),
        "opens": ("/list",),
    }
    return Rules(**{**values, **changes})


class RecordingDoor:
    """A door as the release is one: budget before the first await, one connection, one write, the answer."""

    def __init__(self, deadline_s: float = 10.0, budget: int = 1) -> None:
        self.deadline_s = deadline_s
        self.budget = budget
        self.candidates: list[Candidate] = []
        self.outcomes: list[Relay | Refuse | Hang] = []
        self.answers: list[Any] = []

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
        from executor.gate.rules import Reason

        self.candidates.append(candidate)
        if not self.budget:
            return Refuse(Reason.BUDGET_SPENT)
        self.budget -= 1
        connection = await candidate.connect()
        await connection.write()
        answer = await connection.read_answer(self.deadline_s)
        self.answers.append(answer)
        outcome: Relay | Hang = Hang() if answer is None else Relay(answer)
        self.outcomes.append(outcome)
        return outcome


MakeGate = Callable[..., Awaitable[Gate]]


@pytest.fixture
async def make_gate(gate_authority: CertificateAuthority, site_authority: TestAuthority) -> AsyncIterator[MakeGate]:
    async with AsyncExitStack() as stack:

        async def make(
            origin: Origin,
            phase: Phase = Phase.PREPARE,
            *,
            rules: Rules | None = None,
            door: Any = None,
            before_write: Any = None,
            trusted: tuple[Path, ...] | None = None,
            **limits: Any,
        ) -> Gate:
            gate = Gate(
                authority=gate_authority,
                rules=rules or rules_for(origin),
                phase=phase,
                trust=UpstreamTrust((site_authority.file,) if trusted is None else trusted),
                door=door,
                log=WireLog(),
                before_write=before_write,
                limits=Limits(**limits),
            )
            return await stack.enter_async_context(gate)

        yield make


@pytest.fixture
async def connect(gate_authority: CertificateAuthority) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    async with AsyncExitStack() as stack:

        async def open_client(gate: Gate, url: str, **options: Any) -> Client:
            client = await Client.open(gate.address, url, authority_pem=gate_authority.certificate_pem, **options)
            stack.push_async_callback(client.close)
            return client

        yield open_client

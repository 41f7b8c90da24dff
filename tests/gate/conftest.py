"""Sites and gates for the gate's tests. Everything is on loopback and ends with its test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
from gate_origin import Client, Origin, TestAuthority
from gate_support import rules_for
from http2_parts import Http2Client, Http2Origin

from executor.gate.certificates import CertificateAuthority, UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Rules
from executor.gate.wire_log import WireLog


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
            routes: Routes | None = None,
            **limits: Any,
        ) -> Gate:
            gate = Gate(
                authority=gate_authority,
                rules=rules or rules_for(origin),
                phase=phase,
                routes=routes or Routes.straight(UpstreamTrust((site_authority.file,) if trusted is None else trusted)),
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


@pytest.fixture
async def http2_origin(site_authority: TestAuthority) -> AsyncIterator[Http2Origin]:
    async with Http2Origin(site_authority.server()) as listening:
        yield listening


@pytest.fixture
def far_gate(make_gate: MakeGate, site_authority: TestAuthority) -> MakeGate:
    """A gate to which every site is distant, and that knows that this one speaks HTTP/2."""

    async def make(origin: Any, phase: Phase = Phase.PREPARE, **options: Any) -> Gate:
        routes = Routes.straight(UpstreamTrust((site_authority.file,)))
        routes.learnt.learn(origin.host, origin.port, http2=True)
        return await make_gate(origin, phase, routes=routes, **{"http2_beyond_s": 0.0, **options})

    return make


@pytest.fixture
async def client_of(gate_authority: CertificateAuthority) -> AsyncIterator[Callable[..., Awaitable[Http2Client]]]:
    async with AsyncExitStack() as stack:

        async def open_client(gate: Gate, origin: Any) -> Http2Client:
            client = await Http2Client.open(gate.address, origin.url, gate_authority.certificate_pem)
            stack.push_async_callback(client.close)
            return client

        yield open_client

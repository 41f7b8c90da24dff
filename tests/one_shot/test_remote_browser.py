"""A run in a browser that runs elsewhere, through a tunnel: once, and not at all where the way is not proven.

What left is what the playground's record says.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from desk import PERSON, Desk
from elsewhere import elsewhere

from executor.browser.engines import EndpointKind
from executor.errors import Exit, NotReady
from executor.model.reasons import Halt
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot.run import StepEvent
from playground.faults import Fault

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("kind", EndpointKind)
async def test_published_once(kind: EndpointKind, tls_desk: Desk) -> None:
    """Over TLS: it believes the gate by the key that was kept for it."""
    async with elsewhere(tls_desk.settings.key_folder, kind=kind) as remote:
        tls_desk.overrides |= remote.settings
        ended = await tls_desk.publish()
    assert ended.exit is Exit.SUCCEEDED
    assert tls_desk.playground.truth.publish_count() == 1


async def test_a_tunnel_that_leads_elsewhere_proves_no_path(desk: Desk) -> None:
    """To the site itself, which would take the requests."""
    port = int(desk.site.rpartition(":")[2])
    async with elsewhere(desk.settings.key_folder, gates_lead_to=port) as remote:
        desk.overrides |= remote.settings
        ended = await desk.publish()
    assert ended.ending is not None
    assert ended.ending.coded_reason() is Halt.PATH_NOT_PROVEN
    assert ended.operation.state.dispatch is Dispatch.NOT_STARTED
    assert desk.playground.truth.publish_count() == 0


@dataclass(frozen=True)
class Death:
    """When the tunnel dies, what the site does then, and what is known in the end."""

    at: tuple[int, str]
    fault: Fault | None
    sent: int
    transmission: Transmission | None
    outcome: Outcome


@pytest.mark.parametrize(
    "death",
    [
        pytest.param(Death((4, "begin"), None, 0, None, Outcome.UNOBSERVED), id="in-prepare"),
        # The effect leaves from here, not from there: its answer arrives all the same.
        pytest.param(
            Death((11, "released"), None, 1, Transmission.ANSWERED, Outcome.SUCCEEDED), id="with-the-effect-on-its-way"
        ),
        # Without an answer, and with no browser to look with.
        pytest.param(Death((11, "released"), Fault.LOST, 1, Transmission.POSSIBLE, Outcome.UNKNOWN), id="answer-lost"),
    ],
)
async def test_a_tunnel_that_dies_in_a_run(death: Death, desk: Desk) -> None:
    truth = desk.playground.truth
    if death.fault is not None:
        truth.inject(death.fault, path_prefix="/")
    cutting: list[asyncio.Task[None]] = []
    async with elsewhere(desk.settings.key_folder) as remote:

        def cut(event: StepEvent) -> None:
            if (event.number, event.moment) == death.at and not cutting:
                cutting.append(asyncio.ensure_future(remote.cut()))

        desk.overrides |= remote.settings
        async with desk.executor(cut) as executor:
            operation = await desk.approved(executor)
            ended = await executor.run(operation.id, by=PERSON)
    assert cutting
    assert truth.publish_count() == death.sent
    state = ended.operation.state
    assert (state.transmission, state.outcome) == (death.transmission, death.outcome)
    assert (state.dispatch is Dispatch.NOT_STARTED) is (death.sent == 0)


@pytest.mark.parametrize(
    ("without", "says"),
    [
        (("--enable-automation",), ("does not tell how it was started",)),
        (("--proxy-server", "--webrtc-ip-handling-policy"), ("--proxy-server is", "--webrtc-ip-handling-policy is")),
    ],
    ids=["silent", "loose"],
)
async def test_a_browser_that_was_not_started_so_is_refused(
    without: tuple[str, ...], says: tuple[str, ...], desk: Desk
) -> None:
    async with elsewhere(desk.settings.key_folder, without=without) as remote:
        desk.overrides |= remote.settings
        with pytest.raises(NotReady) as refused:
            await desk.publish()
    assert all(said in str(refused.value) for said in (*says, "interlock browser arguments"))
    assert desk.playground.truth.publish_count() == 0

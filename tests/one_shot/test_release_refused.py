"""Refused at the door: what changed between claim and release, what the request carries, a host that is not there.
Real ledger, real gate, real sockets; not one byte reaches the site, and the reason is the right one (B1, C3, C5, C10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from child import NOT_SENT, SUCCEEDED, UNKNOWN
from desk import PERSON
from release_kit import Bench, Got, Held, bench, shape

from executor.gate.rules import Phase
from executor.model.operation import Disposition
from executor.model.reasons import NotSent, Unsure
from executor.one_shot.recovery import settle_open_attempts


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


async def _revoke(one: Bench) -> None:
    await one.ledger.revoke(one.operation.id, by=PERSON, why="not any more")


async def _let_the_approval_run_out(one: Bench) -> None:
    approval = (await one.ledger.operation(one.operation.id)).approval
    assert approval is not None
    await one.until(approval.expires)


async def _let_the_deadline_pass(one: Bench) -> None:
    assert one.operation.intent.deadline is not None
    await one.until(one.operation.intent.deadline)


async def _let_the_lease_run_out(one: Bench) -> None:
    assert one.run.lease is not None
    await one.until(one.run.lease.until)


async def _recover(one: Bench) -> None:
    settled = await settle_open_attempts(one.ledger, by=PERSON, expired_only=False)
    assert [operation.id for operation in settled] == [one.operation.id]


async def _abandon(one: Bench) -> None:
    found = await one.ledger.operation(one.operation.id)
    await one.ledger.dispose(found.id, Disposition.ABANDONED, by=PERSON, why="not any more", version=found.version)


REFUSALS: dict[str, tuple[Callable[[Bench], Awaitable[Any]], NotSent]] = {
    "stop everything": (lambda one: one.ledger.stop(by=PERSON, why="stop"), NotSent.STOPPED),
    "stop the flow": (lambda one: one.ledger.stop(by=PERSON, why="stop", flow="playground-form"), NotSent.STOPPED),
    "stop the account": (
        lambda one: one.ledger.stop(by=PERSON, why="stop", account_key=one.operation.account_key),
        NotSent.STOPPED,
    ),
    "approval revoked": (_revoke, NotSent.APPROVAL_ENDED),
    "approval expired": (_let_the_approval_run_out, NotSent.APPROVAL_ENDED),
    "deadline passed": (_let_the_deadline_pass, NotSent.DEADLINE_PASSED),
    "lease run out": (_let_the_lease_run_out, NotSent.LEASE_LOST),
    "settled by recovery": (_recover, NotSent.LEASE_LOST),
    "abandoned": (_abandon, NotSent.LEDGER_REFUSED),
}
SOON_S = 3.0
"""Long enough to get to the release on a busy machine, short enough to wait for."""


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("case", REFUSALS)
async def test_what_changes_between_claim_and_release_is_refused_there(
    tmp_path: Path, case: str, database: str, request: pytest.FixtureRequest
) -> None:
    happens, reason = REFUSALS[case]
    where = {"database_url": request.getfixturevalue("server").empty_database()} if database == "postgresql" else {}
    given: dict[str, dict[str, Any]] = {
        "approval expired": {"valid_for_s": SOON_S},
        "deadline passed": {"deadline": datetime.now(UTC) + timedelta(seconds=SOON_S)},
        "lease run out": {"lease_s": SOON_S, "write_within_s": 0.5},
    }
    async with bench(tmp_path, **given.get(case, {}), **where) as one:
        await happens(one)
        assert (await one.publish()).interlock == "ledger_refused"
        # Refusing gives nothing back: there is no second try, not even for a request that would pass now.
        assert (await one.publish()).interlock == "budget_spent"
        assert shape(await one.judged()) == NOT_SENT
        assert one.run.not_sent is reason
        assert one.site.written == 0
        assert "released" not in await one.kinds()


async def test_an_operation_that_is_not_stopped_is_not_held_up_by_another_ones_stop(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        await one.ledger.stop(by=PERSON, why="stop", flow="another-flow")
        await one.ledger.stop(by=PERSON, why="stop", account_key="https://elsewhere.example|editor")
        assert await one.publish() == Got(302)
        assert shape(await one.judged()) == SUCCEEDED


# -- refused by what the request carries, or for want of a host --------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said", "reason"),
    [
        ({"title": "Office closed on Fridax"}, "material_differs", NotSent.MATERIAL_DIFFERS),
        ({"session": "another"}, "session_differs", NotSent.SESSION_DIFFERS),
    ],
)
async def test_a_refusal_does_not_give_the_budget_back(
    tmp_path: Path, wrong: dict[str, str], said: str, reason: NotSent
) -> None:
    async with bench(tmp_path) as one:
        assert (await one.publish(**wrong)).interlock == said
        assert (await one.publish()).interlock == "budget_spent"
        assert shape(await one.judged()) == NOT_SENT
        assert one.run.not_sent is reason
        assert one.site.written == 0


async def test_a_dead_host_is_known_before_anything_is_committed(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        await one.site.close()
        assert (await one.publish()).interlock == "host_unreachable"
        assert shape(await one.judged()) == NOT_SENT
        assert one.run.not_sent is NotSent.HOST_UNREACHABLE
        assert "released" not in await one.kinds()


async def test_a_host_that_does_not_take_the_connection_is_not_waited_for(tmp_path: Path) -> None:
    async with bench(tmp_path, connect_s=0.2) as one:
        held = Held(one.release, "connect")
        one.gate.enter(Phase.ARMED, door=held)
        assert (await one.publish()).interlock == "host_unreachable"
        assert shape(await one.judged()) == NOT_SENT
        assert one.run.not_sent is NotSent.HOST_UNREACHABLE
        assert one.site.written == 0


async def test_a_phase_that_ends_between_commit_and_write_is_proven_unwritten(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        one.at["released"] = lambda: one.gate.enter(Phase.SHUT)
        assert (await one.publish()).interlock == "upstream_failed"
        assert shape(await one.judged()) == NOT_SENT
        assert one.run.not_sent is NotSent.NOTHING_WRITTEN
        assert one.site.written == 0
        assert (await one.kinds())[-3:] == ["released", "nothing_written", "closed"]


async def test_nothing_written_beside_another_write_that_left_is_unknown(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert one.run.claimed is not None
        await one.ledger.expose(one.run.claimed.id, by=one.run.actor, write="autosave", url=one.site.url)
        one.at["released"] = lambda: one.gate.enter(Phase.SHUT)
        publishing = asyncio.create_task(one.publish())
        await one.release.taken.wait()
        assert shape(await one.judged()) == UNKNOWN
        assert one.run.unsure is Unsure.OTHER_WRITE_LEFT
        assert one.site.written == 0
        one.gate.let_go()
        assert await publishing == Got(None)

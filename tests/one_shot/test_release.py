"""The critical section: real ledger, real gate, real sockets, and a site that counts. Nothing here needs a browser.

Whatever happens around the release, the site sees at most one request, and the record never says more than is true:
no `released` without a commit, no "not sent" without a proof, no second write (A5, A6, C3, C5).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from child import NOT_SENT, SUCCEEDED, UNKNOWN, Shape
from release_kit import Got, Held, at_commit, bench, form, really_commit, shape
from sqlalchemy import Connection

from executor.gate.rules import Phase
from executor.ledger.ledger import CommitUncertain
from executor.model.reasons import NotSent, Unsure
from executor.model.retry import Permits, RetryReason, eligibility
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot import after
from executor.one_shot.recovery import settle_open_attempts
from flows.effect import Meaning
from flows.wire import Answer, OutgoingRequest


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


ANSWERED_UNKNOWN = (Dispatch.COMPLETED, Transmission.ANSWERED, Outcome.UNKNOWN)


async def test_one_candidate_is_released_written_answered_and_judged(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        assert shape(await one.judged()) == SUCCEEDED
        assert one.site.posts == [form()]
        assert one.heard == ["spooled", "compared", "connected", "released", "done", "answered"]
        assert (await one.kinds())[-4:] == ["released", "answered", "closed", "seen_succeeded"]


# -- two at a time ---------------------------------------------------------------------------------------------------


async def test_of_candidates_at_the_same_instant_one_leaves(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        got = await asyncio.gather(*(one.publish() for _ in range(5)))
        assert sorted(answer.interlock or "" for answer in got) == ["", *["budget_spent"] * 4]
        assert shape(await one.judged()) == SUCCEEDED
        assert one.site.posts == [form()]
        assert (await one.kinds()).count("released") == 1


@pytest.mark.parametrize("point", ["connect", "write", "answer"])
async def test_a_second_candidate_while_the_first_is_inside_does_not_leave(tmp_path: Path, point: str) -> None:
    async with bench(tmp_path) as one:
        held = Held(one.release, point)
        one.gate.enter(Phase.ARMED, door=held)
        first = asyncio.create_task(one.publish())
        await held.entered.wait()
        assert (await one.publish()).interlock == "budget_spent"
        held.let_go()
        assert await first == Got(302)
        assert shape(await one.judged()) == SUCCEEDED
        assert one.site.posts == [form()]


# -- cancelled at each await -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["connect", "commit", "write", "answer"])
async def test_cancelling_the_caller_changes_nothing(tmp_path: Path, point: str) -> None:
    """Once the budget is taken, what was begun ends: no `released` with nothing written, and no second write."""
    async with bench(tmp_path) as one:
        held = Held(one.release, point)
        one.gate.enter(Phase.ARMED, door=held)
        with at_commit(held.stop_commit, number=1 if point == "commit" else 99):
            publishing = asyncio.create_task(one.publish())
            await held.entered.wait()
            assert held.caller is not None
            held.caller.cancel()
            await asyncio.wait([held.caller])
            assert held.caller.cancelled()
            assert not one.release.disarm()
            waiting = asyncio.create_task(one.release.settled())
            await asyncio.sleep(0)
            waiting.cancel()  # and whoever waits for it may be cancelled too
            await asyncio.wait([waiting])
            held.let_go()
            await one.release.settled()
        assert shape(await one.judged()) == SUCCEEDED
        assert one.site.posts == [form()]
        assert (await one.kinds()).count("released") == 1
        one.gate.let_go()
        await publishing


CLOSED_UNDER = {
    "connect": (0, NOT_SENT, NotSent.HOST_UNREACHABLE),
    "commit": (0, NOT_SENT, NotSent.NOTHING_WRITTEN),
    "write": (0, NOT_SENT, NotSent.NOTHING_WRITTEN),
    "answer": (1, UNKNOWN, Unsure.NO_ANSWER),
}


@pytest.mark.parametrize("point", CLOSED_UNDER)
async def test_a_gate_that_is_closed_by_force_under_the_release_leaves_a_true_record(
    tmp_path: Path, point: str
) -> None:
    posts, expected, reason = CLOSED_UNDER[point]
    async with bench(tmp_path, limits={"door_grace_s": 0.0}) as one:
        one.site.answer = b""
        held = Held(one.release, point)
        one.gate.enter(Phase.ARMED, door=held)
        with at_commit(held.stop_commit, number=1 if point == "commit" else 99):
            publishing = asyncio.create_task(one.publish())
            await held.entered.wait()
            await one.gate.close()
            held.let_go()
            await one.release.settled()
        assert shape(await one.judged()) == expected
        assert (one.run.not_sent or one.run.unsure) is reason
        assert len(one.site.posts) == posts
        assert bool(one.site.written) is bool(posts)
        assert await publishing == Got(None)


# -- the commit ------------------------------------------------------------------------------------------------------


def fail(_connection: Connection) -> None:
    raise OSError("the disk is gone")


def fail_after_all(connection: Connection) -> None:
    really_commit(connection)
    raise OSError("the connection was lost after COMMIT was sent")


async def test_a_commit_that_fails_writes_nothing_and_is_read_back_as_not_made(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        with at_commit(fail):
            assert (await one.publish()).interlock == "ledger_refused"
        account = one.release.account
        assert (account.unsure, account.released_at) == (Unsure.COMMIT_UNCERTAIN, None)
        operation = await one.judged()
        assert shape(operation) == NOT_SENT
        assert (one.run.not_sent, one.run.unsure) == (NotSent.LEDGER_FAILED, None)
        assert one.site.written == 0
        assert "released" not in await one.kinds()
        assert eligibility(operation).permits is Permits.FRESH_APPROVAL


async def test_a_commit_that_was_made_and_reported_as_failed_writes_nothing_and_is_proven(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        with at_commit(fail_after_all):
            assert (await one.publish()).interlock == "ledger_refused"
        assert one.release.account.unsure is Unsure.COMMIT_UNCERTAIN
        operation = await one.judged()
        assert shape(operation) == NOT_SENT
        assert (one.run.not_sent, one.run.unsure) == (NotSent.NOTHING_WRITTEN, None)
        assert one.site.written == 0
        assert (await one.kinds())[-3:] == ["released", "nothing_written", "closed"]
        # The one release is used all the same: `absolute` counts releases, not bytes.
        assert eligibility(operation).reason is RetryReason.RELEASE_SPENT


async def test_an_uncertain_commit_beside_another_write_that_left_stays_possible(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert one.run.claimed is not None
        await one.ledger.expose(one.run.claimed.id, by=one.run.actor, write="autosave", url=one.site.url)
        with at_commit(fail_after_all):
            assert (await one.publish()).interlock == "ledger_refused"
        assert shape(await one.judged()) == UNKNOWN
        assert one.run.unsure is Unsure.COMMIT_UNCERTAIN
        assert one.site.written == 0


async def test_a_slow_commit_is_not_written_under_and_stays_unknown(tmp_path: Path) -> None:
    async with bench(tmp_path, write_within_s=0.2) as one:
        with at_commit(lambda _connection: time.sleep(0.3)):
            publishing = asyncio.create_task(one.publish())
            await one.release.taken.wait()
            await one.release.settled()
        assert shape(await one.judged()) == UNKNOWN
        assert one.run.unsure is Unsure.TOO_LATE_TO_WRITE
        assert one.site.written == 0
        assert not publishing.done()  # the browser neither gets an answer nor may try again
        one.gate.let_go()
        assert await publishing == Got(None)


async def test_an_unknown_never_stands_without_its_stop(tmp_path: Path) -> None:
    """The process may die between the two commits, so the stop comes first (C10)."""
    async with bench(tmp_path, write_within_s=0.2) as one:
        with at_commit(lambda _connection: time.sleep(0.3)):
            publishing = asyncio.create_task(one.publish())
            await one.release.taken.wait()
            await one.release.settled()
        with at_commit(fail, number=2), pytest.raises(CommitUncertain):
            await after.judge(one.run)
        operation = await one.ledger.operation(one.operation.id)
        assert shape(operation) == (Dispatch.STARTED, Transmission.POSSIBLE, Outcome.UNOBSERVED)
        assert [(stop.flow, stop.account_key) for stop in await one.ledger.stops()] == [
            (operation.flow.name, operation.account_key)
        ]
        one.gate.let_go()
        await publishing


async def test_two_recoveries_at_once_settle_it_once(tmp_path: Path) -> None:
    async with bench(tmp_path, write_within_s=0.2) as one:
        with at_commit(lambda _connection: time.sleep(0.3)):
            publishing = asyncio.create_task(one.publish())
            await one.release.taken.wait()
            await one.release.settled()
        settled = await asyncio.gather(
            *(settle_open_attempts(one.ledger, by=one.run.actor, expired_only=False) for _ in range(2))
        )
        assert sorted(map(len, settled)) == [0, 1]
        # And its own run, which comes last, finds it settled: it adds what it knows, and no stop.
        stops = await one.ledger.stops()
        assert stops
        assert shape(await one.judged()) == UNKNOWN
        assert await one.ledger.stops() == stops
        kinds = await one.kinds()
        assert kinds.count("closed") == kinds.count("run_ended") == 1
        one.gate.let_go()
        await publishing


# -- disarming -------------------------------------------------------------------------------------------------------


async def test_disarmed_before_a_candidate_nothing_leaves(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert one.release.disarm()
        assert (await one.publish()).interlock == "budget_spent"
        assert one.release.disarm()
        assert shape(await one.judged()) == NOT_SENT
        assert one.site.written == 0


async def test_disarmed_while_a_candidates_body_arrives_it_does_not_leave(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        host, port = one.gate.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = form()
        writer.write(
            f"POST {one.site.url}/form/publish HTTP/1.1\r\nHost: 127.0.0.1:{one.site.port}\r\nConnection: close\r\n"
            "Cookie: pg_session=s3cret\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body[:5]
        )
        assert await one.gate.until(lambda: one.gate.candidates == 1, 5)
        assert one.release.disarm()
        writer.write(body[5:])
        assert b"x-interlock: budget_spent" in (await reader.read()).lower()
        writer.close()
        await writer.wait_closed()
        assert shape(await one.judged()) == NOT_SENT
        assert one.site.written == 0


@pytest.mark.parametrize("moment", ["spooled", "compared", "connected", "released", "done"])
async def test_disarming_after_a_candidate_says_so_and_lets_it_end(tmp_path: Path, moment: str) -> None:
    async with bench(tmp_path) as one:
        said: list[bool] = []
        one.at[moment] = lambda: said.append(one.release.disarm())
        assert await one.publish() == Got(302)
        assert said == [False]
        assert shape(await one.judged()) == SUCCEEDED
        assert one.site.posts == [form()]


# -- defects ---------------------------------------------------------------------------------------------------------


def defect(*_: object) -> Any:
    raise RuntimeError("Office closed on Friday")  # an error's text may hold what was typed


async def test_a_flow_that_cannot_read_the_material_lets_nothing_leave(tmp_path: Path) -> None:
    async with bench(tmp_path, effect={"material": defect}) as one:
        assert (await one.publish()).interlock == "material_differs"
        assert shape(await one.judged()) == NOT_SENT
        assert one.run.not_sent is NotSent.MATERIAL_DIFFERS
        assert one.release.account.detail == "unreadable (RuntimeError)"
        assert one.site.written == 0


def says_nothing_useful(request: OutgoingRequest, answer: Answer) -> Meaning:
    return defect(request, answer)  # type: ignore[no-any-return]


async def test_a_contract_that_cannot_read_the_answer_leaves_an_answered_unknown(tmp_path: Path) -> None:
    async with bench(tmp_path, read=says_nothing_useful) as one:
        assert await one.publish() == Got(302)  # the browser gets what the site said
        assert shape(await one.judged()) == ANSWERED_UNKNOWN
        assert one.run.unsure is Unsure.CONTRACT_FAILED
        assert "Friday" not in one.release.account.detail
        assert one.site.posts == [form()]
        assert len(await one.ledger.stops()) == 1


@pytest.mark.parametrize(
    ("point", "expected", "posts"), [("connect", NOT_SENT, 0), ("write", UNKNOWN, 0), ("answer", UNKNOWN, 1)]
)
async def test_a_defect_inside_the_section_ends_closed_and_is_seen(
    tmp_path: Path, point: str, expected: Shape, posts: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as one:
        door = Held(one.release, point, error=RuntimeError("Office closed on Friday"))
        one.gate.enter(Phase.ARMED, door=door)
        publishing = asyncio.create_task(one.publish())
        await one.release.taken.wait()
        assert shape(await one.judged()) == expected
        assert one.release.account.detail == "RuntimeError"
        assert len(one.site.posts) == posts
        one.gate.let_go()
        assert (await publishing).status in (403, None)
        assert "the door failed" in caplog.text

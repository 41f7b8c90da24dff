"""Workers as processes, side by side on one ledger. What was published is read from the site's own record."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from child import IDLE, NOT_SENT, SUCCEEDED, UNKNOWN, shape_of
from desk import Desk
from workers import workers

from executor.model.operation import Operation
from executor.model.transitions import Dispatch
from executor.service import Executor
from playground.process import Playground

ACCOUNTS = ("anna", "bert", "cora", "dora")


def databases(*, always: str, long: str) -> pytest.MarkDecorator:
    """On both; one of them only among the long cases."""
    return pytest.mark.parametrize(
        "shared_desk", [always, pytest.param(long, marks=pytest.mark.long)], indirect=True, ids=[always, long]
    )


@pytest.fixture
def shared_desk(request: pytest.FixtureRequest, playground: Playground, tmp_path: Path) -> Desk:
    """Four accounts are signed in; the ledger is on either database."""
    playground.truth.reset()
    desk = Desk(playground, tmp_path)
    if request.param == "postgresql":
        desk.overrides["database_url"] = request.getfixturevalue("server").empty_database()
    for account in ACCOUNTS:
        desk.sign_in(account)
    return desk


async def approved(desk: Desk, executor: Executor, each: int) -> list[Operation]:
    return [
        await desk.approved(executor, title=f"Notice {number} of {account}", account=account)
        for number in range(each)
        for account in ACCOUNTS
    ]


async def all_settled(executor: Executor, wanted: list[Operation]) -> bool:
    """Whether nothing is left to do: each is dispatched and closed, or held by the stop after an unknown."""
    stopped = {stop.account_key for stop in await executor.stops()}
    now = [await executor.operation(one.id) for one in wanted]
    return all(
        one.state.dispatch is Dispatch.COMPLETED
        or (one.state.dispatch is Dispatch.NOT_STARTED and one.account_key in stopped)
        for one in now
    )


def published(desk: Desk) -> Counter[str]:
    return Counter(item.title for item in desk.playground.truth.published())


def turns(desk: Desk) -> dict[str, str]:
    """By account, in the order of the site's record: C for a composer that was opened, P for what was published."""
    truth = desk.playground.truth
    commits = {commit.request_seq for commit in truth.commits()}
    seen: dict[str, str] = defaultdict(str)
    for arrival in truth.requests():
        if arrival.user is None:
            continue
        if arrival.method == "GET" and arrival.target.startswith("/form/new"):
            seen[arrival.user] += "C"
        elif arrival.seq in commits:
            seen[arrival.user] += "P"
    return dict(seen)


@databases(always="sqlite", long="postgresql")
@pytest.mark.timeout(600)
async def test_three_workers_publish_each_once_and_never_two_as_one_account(shared_desk: Desk) -> None:
    desk = shared_desk
    async with desk.executor() as executor:
        wanted = await approved(desk, executor, 3)
        with workers(desk, 3, "--contexts", "2", "--once", worker_poll_s=0.2) as started:
            assert [one.ended() for one in started] == [0, 0, 0]
            said = [line for one in started for line in one.said]
        assert published(desk) == {operation.intent.payload["title"]: 1 for operation in wanted}
        assert turns(desk) == dict.fromkeys(ACCOUNTS, "CP" * 3), "two runs acted as one account at the same time"
        for operation in wanted:
            assert await shape_of(executor, operation.id) == SUCCEEDED
            kinds = [event.kind for event in await executor.events(operation.id)]
            assert (kinds.count("run_started"), kinds.count("run_ended")) == (1, 1), "a busy account cost something"
        assert (await executor.ledger.verify_all()).flaws == ()
    assert sorted(line["operation"] for line in said if "exit" in line) == sorted(one.id for one in wanted)
    assert not any("Notice" in str(line) for line in said), "something of a payload is in the progress"


@pytest.mark.timeout(600)
async def test_a_signal_drains_and_another_worker_goes_on(desk: Desk) -> None:
    for account in ACCOUNTS:
        desk.sign_in(account)
    async with desk.executor() as executor:
        wanted = await approved(desk, executor, 2)
        with workers(desk, 1, "--contexts", "2", worker_poll_s=0.2) as (first,):
            first.until("ended")
            first.signal(signal.SIGTERM)
            first.signal(signal.SIGINT)
            assert first.ended() == 0
            began = [line["operation"] for line in first.said if line["what"] == "started"]
            ended = {line["operation"]: line for line in first.said if "exit" in line}
            done = [line["what"] for line in first.said]
        assert done.count("draining") == 1
        assert "started" not in done[done.index("draining") :]
        assert sorted(began) == sorted(ended), "a run was left without its end"
        for operation, line in ended.items():
            assert await shape_of(executor, operation) == (SUCCEEDED if line["exit"] == 0 else IDLE)
            assert (desk.settings.receipts_folder / f"{operation}.json").exists()
            if line["exit"] != 0:
                assert line["reason"] == "halt:cancelled", str((await executor.ended(operation)).ending.detail)
        assert len([line for line in ended.values() if line["exit"] == 0]) >= 1

        with workers(desk, 1, "--contexts", "2", "--once", worker_poll_s=0.2) as (second,):
            assert second.ended() == 0
        assert published(desk) == {operation.intent.payload["title"]: 1 for operation in wanted}


@databases(always="postgresql", long="sqlite")
@pytest.mark.timeout(600)
async def test_a_worker_that_is_killed_leaves_the_rest_to_another(shared_desk: Desk) -> None:
    desk = shared_desk
    short = {"lease_s": 15.0, "write_within_s": 4.0, "worker_recover_s": 2.0, "worker_poll_s": 0.2, "halt_wait_s": 1.0}
    async with desk.executor() as executor:
        wanted = await approved(desk, executor, 2)
        with workers(desk, 2, "--contexts", "2", **short) as (first, second):
            first.until("ended")
            first.kill()
            deadline = time.monotonic() + 200
            while not await all_settled(executor, wanted):
                assert time.monotonic() < deadline, f"the other worker did not finish the rest: {second.heard()}"
                await asyncio.sleep(0.2)  # what another process does cannot be awaited
            second.signal(signal.SIGTERM)
            assert second.ended() == 0
        count = published(desk)
        assert max(count.values()) == 1
        stopped = {stop.account_key for stop in await executor.stops()}
        for operation in wanted:
            shape, title = await shape_of(executor, operation.id), operation.intent.payload["title"]
            if operation.account_key not in stopped:
                assert (shape, count[title]) in ((SUCCEEDED, 1), (NOT_SENT, 0)), title
            else:
                assert shape in (SUCCEEDED, UNKNOWN, IDLE), title
        assert (await executor.ledger.verify_all()).flaws == ()

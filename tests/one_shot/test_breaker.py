"""After an unknown the flow is stopped as that account until a person has looked (C10): once, by name, and told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from child import UNKNOWN
from desk import PERSON
from release_kit import Bench, bench, shape

from executor.cli.main import execute
from executor.ledger.ledger import NotAPerson
from executor.model.admission import Refusal, refusal
from executor.model.operation import Operation, Stop
from executor.one_shot.recovery import break_circuit


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, str]:
    return {} if request.param == "sqlite" else {"database_url": request.getfixturevalue("server").empty_database()}


async def lose_the_answer(one: Bench) -> None:
    one.site.answer, released = b"", asyncio.Event()
    one.at["released"] = released.set
    publishing = asyncio.create_task(one.publish())
    await released.wait()
    assert shape(await one.judged()) == UNKNOWN
    one.gate.let_go()
    await publishing


async def another(one: Bench, *, account: str) -> Operation:
    proposed = await one.executor.propose(
        flow="playground-form",
        destination=one.site.url,
        account=account,
        payload={"title": f"Another by {account}", "body": "Text"},
        task=f"another-{account}",
        by=PERSON,
    )
    found = proposed.operation
    await one.executor.approve(found.id, by=PERSON, fingerprint=found.fingerprint)
    return found


async def due(one: Bench) -> list[str]:
    return [each.operation.id for each in await one.executor.due(("playground-form",), limit=9)]


async def test_an_unknown_stops_its_flow_as_its_account_until_a_person_lifts_it(
    tmp_path: Path, database: dict[str, str]
) -> None:
    table = {"owner": "web team", "queue": "news desk", "respond_by_s": 60}
    async with bench(tmp_path, answer_s=0.5, flow={"playground-form": table}, **database) as one:
        await lose_the_answer(one)
        # Its run sets the stop, and so may a recovery, or several, that know nothing of it.
        await asyncio.gather(*(break_circuit(one.ledger, one.operation, PERSON) for _ in range(5)))
        (stop,) = await one.executor.stops()
        assert (stop.flow, stop.account_key) == ("playground-form", one.operation.account_key)
        assert one.operation.id in stop.why
        owned = (await one.executor.receipt(one.operation.id)).ownership
        assert (owned.owner, owned.queue) == ("web team", "news desk")
        assert owned.respond_by == one.run.claimed.claimed_at + timedelta(seconds=60)  # type: ignore[union-attr]

        same, other = await another(one, account="editor"), await another(one, account="second")
        refused = refusal(await one.ledger.admission(same.id, same.flow))
        assert refused is not None
        assert (refused.reason, refused.because) == (Refusal.STOPPED, (stop.id,))
        await one.ledger.surrender(one.run.lease)  # type: ignore[arg-type]  # it has one
        assert await due(one) == [other.id]
        with pytest.raises(NotAPerson):
            await one.executor.lift(stop.id, by=one.run.actor, why="it will do")
        await one.executor.lift(stop.id, by=PERSON, why="looked: it is out")
        assert set(await due(one)) == {same.id, other.id}
        assert shape(await one.ledger.operation(one.operation.id)) == UNKNOWN, "lifting settles nothing"


async def test_a_breaker_that_is_switched_off_sets_no_stop(tmp_path: Path) -> None:
    async with bench(tmp_path, answer_s=0.5, circuit_breaker=False) as one:
        await lose_the_answer(one)
        assert await one.executor.stops() == []


def test_people_are_told_what_is_stopped_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def unknown() -> tuple[Operation, Operation, Sequence[Stop]]:
        async with bench(tmp_path, answer_s=0.5) as one:
            await lose_the_answer(one)
            return one.operation, await another(one, account="editor"), await one.executor.stops()

    operation, held, (stop,) = asyncio.run(unknown())
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "keys"))

    def said(*arguments: str) -> str:
        execute(arguments)
        return capsys.readouterr().out

    for told in (said("list"), said("show", held.id), said("doctor", "--quick"), said("stop", "--list")):
        assert stop.id in told
        assert operation.id in told
    assert json.loads(said("show", held.id, "--json"))["stopped_by"] == [stop.id]
    assert [one["stopped_by"] for one in json.loads(said("list", "--json"))] == [[stop.id]] * 2
    assert said("stop", "--lift", stop.id, "--why", "looked").startswith("Lifted")
    assert stop.id not in said("list")

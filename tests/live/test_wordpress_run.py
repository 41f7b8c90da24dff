"""Whole runs on a real WordPress: through the gate, with the ledger, to the receipt. Ground truth is the posts
table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from lossy_front import losing_the_answer
from wordpress_kit import BODY, TITLE, stored, the_only
from wordpress_site import OTHER, PASSWORD, WRITER, WordPressSite

from executor.errors import Exit
from executor.model.operation import Actor, ActorKind
from executor.model.reasons import Halt, NotSent, Unsure
from executor.model.transitions import Outcome, Transmission
from executor.model.verdict import VerdictReason
from executor.service import Ended, Executor
from executor.settings import Settings
from flows.flow import Credentials
from flows.wordpress_blocks import block_markup

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.timeout(360)]

PERSON = Actor(ActorKind.PERSON, "tester")
ODD = Path(__file__).with_name("odd_wordpress_flows.py")
_tasks = itertools.count(1)


def settings(folder: Path, **changes: Any) -> Settings:
    return Settings(home=folder / "home", key_folder=folder / "keys", minimum_free_bytes=1024, **changes)


async def run_once(
    folder: Path, url: str, *, flow: str = "wordpress", user: str = WRITER, **changes: Any
) -> tuple[Ended, Executor]:
    """Sign in by the form, propose, approve, run. The executor is closed; it still reads its settings."""
    async with Executor(settings(folder, **changes)) as executor:
        await executor.login(
            flow=flow,
            destination=url,
            account=WRITER,
            credentials=Credentials(user=user, password=PASSWORD),
            by=PERSON,
        )
        proposed = await executor.propose(
            flow=flow,
            destination=url,
            account=WRITER,
            payload={"title": TITLE, "body": BODY},
            task=f"task-{next(_tasks)}",
            by=PERSON,
        )
        operation = proposed.operation
        await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint)
        return await executor.run(operation.id, by=PERSON), executor


def holds_what_was_approved(site: WordPressSite) -> str:
    """Exactly one published post, equal to what was approved; its id."""
    row = the_only(site.published())
    assert (row.title, row.content, row.author) == (stored(TITLE), stored(block_markup(BODY)), WRITER)
    return str(row.id)


@pytest.mark.parametrize(("place", "pretty"), [("root", False), ("folder", True)])
async def test_a_post_is_published_once(site: WordPressSite, tmp_path: Path, place: str, pretty: bool) -> None:
    site.pretty_links(pretty)
    url = site.root_url if place == "root" else site.folder_url
    ended, _ = await run_once(tmp_path, url)
    assert ended.ending is not None
    assert ended.exit is Exit.SUCCEEDED, (ended.ending.reason, ended.ending.detail)
    assert ended.ending.item == holds_what_was_approved(site)
    assert ended.ending.verdict_reason is VerdictReason.PROVIDER_ID_IN_ANSWER
    assert [write.kind for write in ended.ending.left].count("effect") == 1
    assert {write.name for write in ended.ending.left if write.kind == "supporting"} <= {
        "editor preferences",
        "heartbeat",
    }
    assert ended.ending.baseline == ()
    assert [look.result for look in ended.ending.looks if look.when == "after"][-1:] == ["found"]


async def test_a_lost_answer_is_unknown_and_nothing_is_sent_again(site: WordPressSite, tmp_path: Path) -> None:
    async with losing_the_answer(port_of(site), b'"status":"publish"') as front:
        ended, _ = await run_once(tmp_path, front.url, verify_delays_s=(), answer_s=10.0)
        async with Executor(settings(tmp_path)) as executor:
            again = await executor.run(ended.operation.id, by=PERSON)
    holds_what_was_approved(site)
    assert front.lost == 1
    assert ended.exit is Exit.UNKNOWN
    assert ended.ending is not None
    assert ended.ending.reason == f"unsure:{Unsure.NO_ANSWER}"
    assert (ended.operation.state.outcome, ended.operation.state.transmission) == (
        Outcome.UNKNOWN,
        Transmission.POSSIBLE,
    )
    assert ended.receipt_paths.text.read_text().startswith("UNKNOWN")
    assert again.exit is Exit.REFUSED


async def test_a_lost_answer_is_found_by_looking(site: WordPressSite, tmp_path: Path) -> None:
    older = site.add_post(TITLE, block_markup(BODY + "!"))
    async with losing_the_answer(port_of(site), b'"status":"publish"') as front:
        ended, _ = await run_once(tmp_path, front.url, answer_s=10.0)
    assert front.lost == 1
    [row] = [row for row in site.published() if row.id != older]
    assert ended.ending is not None
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending.reason == f"unsure:{Unsure.NO_ANSWER}"
    assert ended.ending.verdict_reason is VerdictReason.EXACT_ITEM_SEEN
    assert ended.ending.item == str(row.id)
    assert ended.ending.baseline == (str(older),)
    assert ended.operation.state.transmission is Transmission.POSSIBLE


async def test_a_click_with_the_effect_closed_is_stopped(site: WordPressSite, tmp_path: Path) -> None:
    ended, executor = await run_once(tmp_path, site.root_url, flow=f"{ODD}:ClicksInPrepare")
    assert site.published() == []
    assert ended.ending is not None
    assert ended.ending.reason == f"halt:{Halt.FLOW_REACHED_EFFECT}"
    assert len(ended.ending.refused_writes) == 1
    assert ended.ending.refused_writes[0].startswith("effect_closed: POST")
    assert [write for write in ended.ending.left if write.kind == "effect"] == []
    said = vars(type(executor.flows.get(f"{ODD}:ClicksInPrepare")))["said"]
    assert "Publishing failed" in said


@pytest.mark.parametrize(
    ("flow", "reason"),
    [
        ("GetsByQuery", "method_override"),
        ("GetsByHeader", "method_override"),
        ("SendsBatch", "not_declared"),
        ("SendsAutosave", "not_declared"),
    ],
)
async def test_a_way_around_is_refused_on_the_wire(site: WordPressSite, tmp_path: Path, flow: str, reason: str) -> None:
    ended, _ = await run_once(tmp_path, site.root_url, flow=f"{ODD}:{flow}")
    assert site.published() == []
    assert ended.ending is not None
    assert ended.ending.reason == f"halt:{Halt.PREPARE_FAILED}"
    assert f"answered with 403 {reason}" in ended.ending.detail


async def test_another_title_on_the_way_out_is_stopped(site: WordPressSite, tmp_path: Path) -> None:
    ended, _ = await run_once(tmp_path, site.root_url, flow=f"{ODD}:ChangesOneCharacter")
    assert site.published() == []
    assert ended.ending is not None
    assert ended.exit is Exit.NOT_SENT
    assert ended.ending.reason == f"not_sent:{NotSent.MATERIAL_DIFFERS}"
    assert ended.operation.state.transmission is Transmission.NONE_PROVEN


async def test_another_account_stops_before_the_claim(site: WordPressSite, tmp_path: Path) -> None:
    ended, _ = await run_once(tmp_path, site.root_url, user=OTHER)
    assert site.published() == []
    assert ended.ending is not None
    assert ended.exit is Exit.REFUSED
    assert ended.ending.reason == f"halt:{Halt.ACCOUNT_DIFFERS}"
    assert ended.ending.attempt is None


async def test_a_post_that_is_there_already_stops_before_the_claim(site: WordPressSite, tmp_path: Path) -> None:
    there = site.add_post(TITLE, block_markup(BODY))
    ended, _ = await run_once(tmp_path, site.root_url)
    assert the_only(site.published()).id == there
    assert ended.ending is not None
    assert ended.ending.reason == f"halt:{Halt.ALREADY_THERE}"


def port_of(site: WordPressSite) -> int:
    port = urlsplit(site.root_url).port
    assert port is not None
    return port

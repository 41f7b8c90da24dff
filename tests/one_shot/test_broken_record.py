"""Spellings and values at the edge of what a record can keep: refused in a sentence, or the same thing as before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from desk import PERSON, Desk

from executor.errors import BadInput


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


def _given(desk: Desk, **other: Any) -> dict[str, Any]:
    payload = {"title": "T", "body": "B"}
    asked = {"flow": "playground-form", "destination": desk.site, "account": "editor", "payload": payload, "task": "t"}
    return {**asked, "by": PERSON, **other}


@pytest.mark.parametrize(
    "other",
    [
        {"account": "edi\ntor"},
        {"account": "editor\0"},
        {"account": "e\ud800"},
        {"task": "t\nOUTCOME succeeded"},
        {"task": "t\x1b[2J"},
        {"deadline": datetime(1, 1, 1, tzinfo=UTC)},
        {"deadline": datetime.max.replace(tzinfo=UTC)},
    ],
)
async def test_what_no_record_can_show_is_refused(other: dict[str, Any], desk: Desk) -> None:
    async with desk.executor() as executor:
        with pytest.raises(BadInput):
            await executor.propose(**_given(desk, **other))
        assert await executor.operations() == []


async def test_another_spelling_is_the_same_operation(desk: Desk) -> None:
    async with desk.executor() as executor:
        first = await executor.propose(**_given(desk))
        for other in (
            {"destination": f" {desk.site.upper()}// "},
            {"destination": desk.site.replace("127.0.0.1", "127.0.0.1.") + "/?utm_source=x#top"},
            {"account": "\u00a0editor "},
            {"task": " t\n"},
            {"flow": "playground-spa"},
            {"payload": {"title": " T ", "body": "B"}},
        ):
            again = await executor.propose(**_given(desk, **other))
            assert (again.operation.id, again.created) == (first.operation.id, False), other


async def test_a_stop_holds_whatever_way_its_site_is_spelt(desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = (await executor.propose(**_given(desk))).operation
        for site in (desk.site.upper() + "/", desk.site.replace("127.0.0.1", "127.0.0.1."), f" {desk.site}"):
            stop = await executor.stop(by=PERSON, why="to be sure", destination=site, account=" editor ")
            assert stop.account_key == operation.account_key


@pytest.mark.parametrize("valid_for_s", [0.0, -1.0, float("nan"), float("inf"), 1e300])
async def test_an_approval_that_would_not_run_out_is_refused(valid_for_s: float, desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = (await executor.propose(**_given(desk))).operation
        with pytest.raises(BadInput, match="seconds"):
            await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, valid_for_s=valid_for_s)

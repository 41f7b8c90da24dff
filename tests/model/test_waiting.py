"""After which halts a machine may run again, and how long it waits (B6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from executor.model.admission import Refusal
from executor.model.reasons import Halt, Reason
from executor.model.waiting import MAY_BE_THE_SITE, PASSES_BY_ITSELF, HaltedRun, Patience, Wait, wait_after
from executor.one_shot.trouble import LONGEST_RETRY_AFTER_S, retry_after

PATIENCE = Patience(halts=5, first_s=30, longest_s=300)


def after(
    reason: Reason,
    *,
    before: int = 0,
    left: bool = False,
    unavailable: bool = False,
    asked: float | None = None,
) -> Wait | None:
    run = HaltedRun(reason=reason, left_writes=left, site_unavailable=unavailable, retry_after_s=asked)
    return wait_after(run, PATIENCE, halts_before=before)


def seconds(wait: Wait | None) -> float | None:
    assert wait is not None
    return wait.seconds


def test_what_passes_by_itself_waits_twice_as_long_each_time_and_then_for_a_person() -> None:
    waits = [seconds(after(Halt.BROWSER_LOST, before=number)) for number in range(6)]
    assert waits == [30, 60, 120, 240, 300, None]


@pytest.mark.parametrize("reason", Halt)
def test_every_halt_has_its_answer(reason: Halt) -> None:
    alone, with_the_site = after(reason), after(reason, unavailable=True)
    if reason is Halt.CANCELLED:
        assert (alone, with_the_site) == (None, None)
        return
    assert (seconds(alone) is not None) == (reason in PASSES_BY_ITSELF)
    assert (seconds(with_the_site) is not None) == (reason in PASSES_BY_ITSELF | MAY_BE_THE_SITE)


def test_what_was_stored_on_the_site_is_not_stored_again_by_a_machine() -> None:
    assert seconds(after(Halt.BROWSER_LOST, left=True)) is None


def test_the_site_says_when_to_come_again() -> None:
    assert seconds(after(Halt.COULD_NOT_LOOK, unavailable=True, asked=900)) == 900
    assert seconds(after(Halt.COULD_NOT_LOOK, unavailable=True, asked=1)) == 30, "the shorter one does not count"
    assert seconds(after(Halt.COULD_NOT_LOOK, unavailable=True, asked=900, before=5)) is None, "nor for ever"


def test_a_refusal_is_asked_again_by_the_ledger_alone() -> None:
    assert {after(reason) for reason in Refusal if reason is not Refusal.LEASE_LOST} == {None}
    assert seconds(after(Refusal.LEASE_LOST)) == 30


def test_retry_after_in_seconds_or_as_a_date() -> None:
    now = datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert retry_after(" 120 ", now=now) == 120
    assert retry_after(format_datetime(now + timedelta(minutes=5), usegmt=True), now=now) == 300
    assert retry_after(format_datetime(now - timedelta(minutes=5), usegmt=True), now=now) is None
    assert retry_after("9" * 40, now=now) == LONGEST_RETRY_AFTER_S
    assert [retry_after(value, now=now) for value in ("", "0", "-3", "soon", "1.5", "٣")] == [None] * 6

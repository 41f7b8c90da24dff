"""Failure classes: one for every way in which a run ends, in their order (E2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from executor.model import docs
from executor.model.admission import Refusal
from executor.model.ending import Ending, code, parse_reason
from executor.model.failure import FailureClass, classify
from executor.model.reasons import Halt, NotSent, Unsure
from executor.model.transitions import Outcome

REASONS: list[Any] = [*Halt, *NotSent, *Unsure, *Refusal]
NAMES = [code(reason) for reason in REASONS]


def test_the_order() -> None:
    assert [one.value for one in FailureClass] == [
        "policy_conflict",
        "uncertain_action",
        "missing_evidence",
        "temporary_failure",
        "escalate",
        "stop",
    ]
    assert len({one.response for one in FailureClass}) == len(FailureClass)


@pytest.mark.parametrize("reason", REASONS, ids=NAMES)
def test_each_reason_has_one_class_and_a_sentence(reason: Any) -> None:
    assert isinstance(classify(reason, Outcome.UNOBSERVED), FailureClass)
    assert reason.sentence[0].isupper()
    assert reason.sentence.endswith(".")


@pytest.mark.parametrize("reason", [None, *REASONS], ids=["none", *NAMES])
def test_the_outcome_comes_first(reason: Any) -> None:
    assert classify(reason, Outcome.UNKNOWN) is FailureClass.UNCERTAIN_ACTION
    assert classify(reason, Outcome.SUCCEEDED) is None
    assert classify(reason, Outcome.ACCEPTED) is None


@pytest.mark.parametrize("reason", [None, *Halt, *NotSent, *Refusal])
def test_what_the_site_refused_stops(reason: Any) -> None:
    assert classify(reason, Outcome.REJECTED) is FailureClass.STOP


@pytest.mark.parametrize("reason", NotSent)
def test_what_is_proven_not_sent_is_never_uncertain(reason: NotSent) -> None:
    found = classify(reason, Outcome.UNOBSERVED)
    assert found in (FailureClass.POLICY_CONFLICT, FailureClass.TEMPORARY_FAILURE, FailureClass.ESCALATE)


@pytest.mark.parametrize("reason", Unsure)
def test_what_may_have_left_is_always_uncertain(reason: Unsure) -> None:
    assert classify(reason, Outcome.UNOBSERVED) is FailureClass.UNCERTAIN_ACTION


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (Halt.ALREADY_THERE, FailureClass.POLICY_CONFLICT),
        (Halt.ACCOUNT_DIFFERS, FailureClass.POLICY_CONFLICT),
        (NotSent.MATERIAL_DIFFERS, FailureClass.POLICY_CONFLICT),
        (NotSent.HOST_UNREACHABLE, FailureClass.TEMPORARY_FAILURE),
        (NotSent.VALIDATION_MESSAGE, FailureClass.ESCALATE),
        (Halt.IDENTITY_UNREADABLE, FailureClass.MISSING_EVIDENCE),
        (Refusal.DISPOSITION_CLOSED, FailureClass.STOP),
        (None, FailureClass.STOP),
    ],
)
def test_some_by_name(reason: Any, found: FailureClass) -> None:
    assert classify(reason, Outcome.UNOBSERVED) is found


@pytest.mark.parametrize("reason", REASONS, ids=NAMES)
def test_a_reason_survives_being_written_down(reason: Any) -> None:
    back = parse_reason(code(reason))
    assert back is reason
    assert type(back) is type(reason)


@pytest.mark.parametrize("text", ["halt:nonsense", "nonsense:halt", "halt", ""])
def test_another_text_is_no_reason(text: str) -> None:
    with pytest.raises(ValueError):
        parse_reason(text)


def test_an_ending_gives_its_reason_back() -> None:
    when = datetime(2026, 3, 1, tzinfo=UTC)
    ending = Ending(
        run="r", attempt=None, started_at=when, ended_at=when, step=5, reason="halt:account_differs", transmission=None
    )
    assert ending.coded_reason() is Halt.ACCOUNT_DIFFERS
    assert Ending.model_validate_json(ending.model_dump_json()) == ending


def test_the_documents_name_every_reason_once() -> None:
    classes = docs.failure_classes()
    assert all(classes.count(f"`{name}`") == 1 for name in NAMES)
    assert all(f"`{reason.value}`" in docs.reasons() + docs.refusals() for reason in REASONS)
    rows = docs.refusals().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [reason.value for reason in Refusal]

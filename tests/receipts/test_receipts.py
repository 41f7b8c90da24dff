"""A receipt says what the record says: no more (E4), nothing of the payload (A11), and what may be done (E1)."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from receipt_making import (
    BODY,
    IDLE,
    INTENT,
    NOT_SENT,
    NOW,
    PERSON,
    SUCCEEDED,
    TITLE,
    UNKNOWN,
    approval,
    attempt,
    effect_request,
    ending,
    event,
    history,
    look,
    lost,
    operation,
    published,
    state,
    write,
)

from executor.model.admission import Refusal
from executor.model.ending import Ending, WebSocketHeld, code
from executor.model.fingerprint import provider_key
from executor.model.key import terms
from executor.model.operation import Disposition, EventRecord, Policy
from executor.model.reasons import Halt, NotSent, Unsure
from executor.model.retry import Permits, RetryReason
from executor.model.transitions import Dispatch, Outcome, Permission, State, Transmission, illegal
from executor.model.verdict import Discrepancy, VerdictReason
from executor.receipts import (
    ActionPermitted,
    ActionProhibited,
    Detector,
    Receipt,
    Standing,
    build_receipt,
    render_text,
    schema_json,
    write_receipt,
)
from executor.receipts.guidance import detector
from flows.effect import Category, ClientKey, Contract, Meaning, Says, Undo

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = Contract(
    read_answer=lambda _request, _answer: Meaning(says=Says.NOTHING, clause="none"),
    category=Category.WRITE_WITHOUT_KEY,
    undo=Undo.REVERSIBLE_AT_A_COST,
    undo_instructions="Delete it in the list of notices.",
)


def receipt(
    joint: State, end: Ending | None = None, *more: EventRecord, contract: Contract | None = CONTRACT, **changes: Any
) -> Receipt:
    return build_receipt(operation(joint, **changes), history(end, *more), contract, now=NOW + timedelta(minutes=1))


def permitted(made: Receipt) -> list[ActionPermitted]:
    return [one.action for one in made.permitted]


def prohibited(made: Receipt) -> set[ActionProhibited]:
    return {one.action for one in made.prohibited}


# -- what each ending says --------------------------------------------------------------------------------------------
def test_a_lost_answer_is_unknown_with_owner_handle_and_prohibitions() -> None:
    made = receipt(UNKNOWN, lost())
    assert made.standing is Standing.UNKNOWN
    assert made.verdict == "UNKNOWN — it may have been published. Do not submit again."
    assert made.failure is not None
    assert made.failure.failure_class.value == "uncertain_action"
    assert made.reason is not None
    assert (made.reason.code, made.reason.detector) == ("unsure:no_answer", Detector.GATE)
    assert permitted(made)[0] is ActionPermitted.LOOK_READ_ONLY
    assert {
        ActionProhibited.SUBMIT_AGAIN,
        ActionProhibited.SUBMIT_BY_HAND,
        ActionProhibited.REPORT_AS_FAILED,
        ActionProhibited.REPORT_AS_PUBLISHED,
        ActionProhibited.RELOAD_THE_PAGE,
    } <= prohibited(made)
    assert made.ownership.owner == "operator"
    assert made.ownership.respond_by == NOW + timedelta(seconds=4, hours=4)
    assert made.handle.effect_request is not None
    assert made.handle.effect_request.body_sha256 == "f" * 64
    assert made.handle.baseline == ("11", "12")
    assert (made.retry.permits.value, made.retry.reason.value) == ("nothing", "unknown_absolute")
    assert made.unknown[0] == "Whether it was published."
    assert made.automatic_writes_disabled is True
    assert (made.record.chain_head, made.record.version) == ("e" * 64, 7)


def test_the_collateral_of_a_run_is_listed() -> None:
    made = receipt(UNKNOWN, lost())
    assert [(one.name, one.kind, one.item) for one in made.attempted.left] == [
        ("post published", "effect", None),
        ("save draft", "supporting", "13"),
    ]
    assert "save draft" in render_text(made)


def test_a_websocket_is_named_as_a_blind_spot() -> None:
    held = WebSocketHeld(
        sequence=2,
        at=lost().started_at,
        name="presence",
        url="https://notes.example/live?room=5ec2e7",
        messages_out=1,
        messages_in=3,
        ended="closed by the gate",
    )
    made = receipt(UNKNOWN, lost(websockets=(held,)))
    assert [(one.name, one.url, one.messages_out) for one in made.attempted.websockets] == [
        ("presence", "https://notes.example/live", 1)
    ]
    assert any("1 message of the page over the WebSocket presence" in line for line in made.unknown)
    text = " ".join(render_text(made).split())
    assert "presence: https://notes.example/live, messages 1 out, 3 in; closed by the gate" in text


def test_published_names_the_item_and_needs_no_owner() -> None:
    seen = event(6, "seen_succeeded", why="The answer names item 14.", data={"reason": "provider_id_in_answer"})
    made = receipt(SUCCEEDED, published(), replace(seen, evidence=("a" * 64,)))
    assert made.standing is Standing.SUCCEEDED
    assert made.failure is None
    assert (made.observed.item, made.observed.item_url) == ("14", "https://notes.example/items/14")
    assert made.observed.established_by == ("a" * 64,)
    assert made.ownership.owner is None
    assert made.ownership.reason
    assert made.reason is not None
    assert (made.reason.code, made.reason.detector) == ("verdict:provider_id_in_answer", Detector.CONTRACT)
    assert permitted(made)[0] is ActionPermitted.REPORT_AS_PUBLISHED
    assert ActionProhibited.SUBMIT_AGAIN in prohibited(made)


def test_a_lost_answer_that_a_look_resolved_rests_on_the_look() -> None:
    seen = event(6, "seen_succeeded", why="The view shows item 15.", data={"reason": "exact_item_seen"})
    end = lost(verdict_reason=VerdictReason.EXACT_ITEM_SEEN, verdict_why="The view shows item 15.", item="15")
    made = receipt(state(dispatch="completed", transmission="possible", outcome="succeeded"), end, seen)
    assert made.reason is not None
    assert (made.reason.code, made.reason.detector) == ("verdict:exact_item_seen", Detector.RUNNER)
    assert made.failure is None


def test_a_person_who_resolved_it_is_the_detector() -> None:
    seen = event(6, "seen_succeeded", why="Seen in the list.", data={"reason": "by_hand"}, actor=PERSON)
    made = receipt(state(dispatch="completed", transmission="possible", outcome="succeeded"), lost(), seen)
    assert made.reason is not None
    assert (made.reason.code, made.reason.detector) == ("verdict:by_hand", Detector.PERSON)


@pytest.mark.parametrize("reason", NotSent)
def test_proven_not_sent_says_so_and_permits_what_the_record_permits(reason: NotSent) -> None:
    end = ending(attempt="at-1", step=17, reason=code(reason), transmission=Transmission.NONE_PROVEN)
    made = receipt(NOT_SENT, end)
    assert made.standing is Standing.NOT_SENT
    assert made.verdict == "NOT SENT — it is proven that the request did not leave."
    assert made.failure is not None
    assert made.failure.failure_class.value != "uncertain_action"
    assert ActionPermitted.APPROVE_AGAIN_AND_RUN in permitted(made)
    assert ActionProhibited.REPORT_AS_PUBLISHED in prohibited(made)
    assert made.ownership.owner is None


def test_a_spent_release_permits_no_further_attempt_although_nothing_left() -> None:
    spent = attempt(Transmission.NONE_PROVEN, released_at=NOW)
    end = ending(attempt="at-1", step=17, reason="not_sent:nothing_written", transmission=Transmission.NONE_PROVEN)
    made = receipt(NOT_SENT, end, attempts=(spent,))
    assert ActionPermitted.APPROVE_AGAIN_AND_RUN not in permitted(made)
    assert ActionProhibited.SUBMIT_AGAIN in prohibited(made)


@pytest.mark.parametrize("reason", Halt)
def test_a_halt_says_that_nothing_was_submitted_and_what_to_do(reason: Halt) -> None:
    made = receipt(IDLE, ending(reason=code(reason)))
    assert made.standing is Standing.HALTED
    assert made.reason is not None
    assert made.reason.sentence == reason.sentence
    assert made.attempted.released is False
    assert made.ids.attempt is None
    assert made.stage is not None
    assert made.stage.name == "identity"
    assert made.permitted


def test_an_item_that_is_there_already_is_closed_against_and_never_submitted() -> None:
    made = receipt(
        IDLE, ending(reason="halt:already_there", step=8, item="9", item_url="https://notes.example/items/9")
    )
    assert permitted(made)[0] is ActionPermitted.CLOSE_AGAINST_ITEM
    assert ActionPermitted.RUN_AGAIN not in permitted(made)
    assert {ActionProhibited.SUBMIT_AGAIN, ActionProhibited.SUBMIT_BY_HAND} <= prohibited(made)
    assert made.handle.item == "9"


@pytest.mark.parametrize("reason", [one for one in Refusal if one is not Refusal.ALREADY_DISPATCHED])
def test_a_refused_run_names_what_stands_in_the_way(reason: Refusal) -> None:
    refused = event(4, "refused", why=reason.sentence, data={"reason": reason.value, "because": ["op-9"]})
    made = build_receipt(operation(IDLE), [event(1, "proposed"), refused], CONTRACT, now=NOW)
    assert made.standing is Standing.REFUSED
    assert made.reason is not None
    assert (made.reason.code, made.reason.because) == (f"refusal:{reason.value}", ("op-9",))
    assert "op-9" in render_text(made)


def test_a_repeated_run_keeps_the_receipt_of_what_happened() -> None:
    again = event(9, "refused", data={"reason": "already_dispatched", "because": []})
    first, second = receipt(UNKNOWN, lost()), receipt(UNKNOWN, lost(), again)
    assert second.reason == first.reason
    assert second.verdict == first.verdict
    assert second.attempted == first.attempted


def test_before_a_run_there_is_a_receipt_too() -> None:
    made = build_receipt(operation(state("pending")), [event(1, "proposed")], CONTRACT, now=NOW)
    assert made.standing is Standing.NOT_RUN
    assert permitted(made)[0] is ActionPermitted.APPROVE_AND_RUN
    approved = build_receipt(operation(IDLE), [event(1, "proposed"), event(2, "approved")], CONTRACT, now=NOW)
    assert permitted(approved)[0] is ActionPermitted.RUN_AGAIN


def test_an_open_attempt_is_not_explained_by_what_came_before_it() -> None:
    before = [
        event(1, "refused", data={"reason": "stopped"}),
        event(2, "run_ended", data=ending(reason="halt:cancelled").model_dump(mode="json")),
        event(3, "claimed"),
    ]
    made = build_receipt(operation(state(dispatch="started", transmission="possible")), before, CONTRACT, now=NOW)
    assert made.standing is Standing.STARTED
    assert made.reason is None
    assert made.evidence is None
    assert made.ownership.owner == "operator"
    assert ActionProhibited.SUBMIT_AGAIN in prohibited(made)


def test_a_reopened_operation_is_not_described_by_its_earlier_attempt() -> None:
    end = ending(attempt="at-1", step=17, reason="not_sent:no_request", transmission=Transmission.NONE_PROVEN)
    made = receipt(IDLE, end, event(9, "reopened"), attempts=(attempt(Transmission.NONE_PROVEN),))
    assert made.standing is Standing.NOT_RUN
    assert made.reason is None
    assert made.ids.attempts == 1


def test_the_handoff_of_the_record_names_owner_and_time() -> None:
    until = (NOW + timedelta(hours=1)).isoformat()
    made = receipt(UNKNOWN, lost(), event(9, "handoff", data={"owner": "ines", "respond_by": until}))
    assert (made.ownership.owner, made.ownership.respond_by) == ("ines", NOW + timedelta(hours=1))


def test_a_contract_that_forbids_looking_is_obeyed() -> None:
    made = receipt(UNKNOWN, lost(looks=()), contract=replace(CONTRACT, look_after=False))
    assert ActionPermitted.LOOK_READ_ONLY not in permitted(made)
    assert permitted(made)[0] is ActionPermitted.ASK_THE_SITE
    assert ActionProhibited.LOOK in prohibited(made)


def test_the_providers_key_is_the_handle_where_there_is_one() -> None:
    key = ClientKey(header="Idempotency-Key", field=None, scope="account", lifetime_s=3600, attempts=3, same_fields=())
    made = receipt(
        UNKNOWN, lost(), contract=replace(CONTRACT, key=key), provider_key="il-123", policy=Policy.IDEMPOTENT
    )
    assert made.handle.provider_key is not None
    assert made.handle.provider_key.model_dump() == {
        "key": "il-123",
        "scope": "account",
        "lifetime_s": 3600,
        "attempts": 3,
    }
    assert "il-123" in render_text(made)


def by_key(now: datetime = NOW, **changes: Any) -> Receipt:
    """The receipt of an unknown whose provider honours its key."""
    key = ClientKey(header="Idempotency-Key", field=None, scope="account", lifetime_s=3600, attempts=3, same_fields=())
    record = operation(UNKNOWN, policy=Policy.IDEMPOTENT, **changes)
    record = replace(record, provider_key=provider_key(record.identity))
    made = record.attempts[0]
    flow = record.approval.flow if record.approval else record.flow
    events = [
        event(1, "proposed"),
        event(2, "approved", data={"approval": made.approval, "flow": asdict(flow)}),
        event(3, "claimed", data={"attempt": made.id, "key": terms(record, key)}),
        event(4, "released", data={"attempt": made.id, "from_page_only": []}),
        event(5, "closed", data={"attempt": made.id}),
    ]
    return build_receipt(record, events, replace(CONTRACT, key=key), now=now)


def test_a_key_that_holds_permits_a_run_and_says_until_when() -> None:
    made = by_key()
    assert made.retry.permits is Permits.SAME_KEY
    assert made.retry.until is not None
    assert ActionPermitted.APPROVE_AND_RUN_WITH_KEY in permitted(made)
    assert ActionProhibited.SUBMIT_AGAIN not in prohibited(made)
    assert {ActionProhibited.SUBMIT_WITHOUT_KEY, ActionProhibited.SUBMIT_BY_HAND} <= prohibited(made)
    assert "running this operation again" in made.verdict
    assert made.retry.until.strftime("%H:%M:%S") in render_text(made)


def test_a_key_whose_time_is_over_permits_nothing_more() -> None:
    until = by_key().retry.until
    assert until is not None
    made = by_key(now=until)
    assert (made.retry.permits, made.retry.reason) == (Permits.NOTHING, RetryReason.KEY_LIFETIME_OVER)
    assert ActionProhibited.SUBMIT_AGAIN in prohibited(made)
    assert made.verdict.endswith("Do not submit again.")


def test_an_operation_that_a_person_closed_is_not_run_again_by_its_key() -> None:
    made = by_key(disposition=Disposition.CLOSED)
    assert ActionPermitted.APPROVE_AND_RUN_WITH_KEY not in permitted(made)
    assert ActionProhibited.SUBMIT_AGAIN in prohibited(made)


def test_a_discrepancy_beside_a_success_has_an_owner() -> None:
    made = receipt(SUCCEEDED, published(discrepancy=Discrepancy.DUPLICATE))
    assert made.ownership.owner == "operator"
    assert permitted(made)[0] is ActionPermitted.REVIEW_DISCREPANCY
    assert "review" in made.verdict


def test_a_flow_that_is_gone_leaves_the_record_readable() -> None:
    made = receipt(UNKNOWN, lost(), contract=None)
    assert made.undo is None
    assert made.standing is Standing.UNKNOWN


def test_material_that_only_the_page_showed_is_named() -> None:
    made = receipt(SUCCEEDED, published(effect=effect_request(from_page_only=("cover",))))
    assert made.read_from_page_only == ("cover",)
    assert any("cover" in sentence for sentence in made.unknown)


def test_a_closed_operation_is_not_offered_again() -> None:
    end = ending(attempt="at-1", step=17, reason="not_sent:no_request", transmission=Transmission.NONE_PROVEN)
    made = receipt(NOT_SENT, end, disposition=Disposition.ABANDONED)
    assert ActionPermitted.APPROVE_AGAIN_AND_RUN not in permitted(made)


def test_members_of_equal_value_and_different_kind_are_told_apart() -> None:
    assert detector(NotSent.PROCESS_LOST) is detector(Unsure.PROCESS_LOST) is Detector.RECOVERY
    assert detector(Halt.LEDGER_FAILED) is Detector.LEDGER
    assert detector(Halt.CANCELLED) is Detector.RUNNER
    assert detector(Refusal.LEASE_LOST) is Detector.LEDGER


def test_a_record_that_cannot_be_read_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ValueError):
        receipt(IDLE, None, event(9, "refused", data={"reason": "not_sent:stopped"}))
    with pytest.raises(ValueError):
        receipt(IDLE, None, event(9, "run_ended", data={"run": "run-1"}))


# -- nothing of the payload -------------------------------------------------------------------------------------------
def test_nothing_of_the_payload_is_in_a_receipt() -> None:
    says = f"the page shows “{TITLE}” and not {BODY}"
    end = lost(
        detail=says,
        verdict_why=says,
        dialogs=(TITLE,),
        refused_writes=(f"unseen POST https://notes.example/x?title={TITLE}",),
        looks=(look(scope=says, detail=says),),
        effect=effect_request(url="https://notes.example/publish?title=Harbour&_wpnonce=5ec2e7#5ec2e7"),
        left=(write(url="https://notes.example/save?content=Boats"),),
    )
    made = receipt(UNKNOWN, end, event(9, "note", why=says))
    for text in (made.model_dump_json(), render_text(made)):
        for secret in (TITLE, BODY, *BODY.splitlines(), "5ec2e7", "Boats", "Harbour"):
            assert secret not in text
    assert made.handle.effect_request is not None
    assert made.handle.effect_request.query_names == ("title", "_wpnonce")


# -- the text ---------------------------------------------------------------------------------------------------------
def test_the_text_opens_with_the_verdict_then_what_to_do_then_what_not() -> None:
    lines = render_text(receipt(UNKNOWN, lost())).splitlines()
    assert lines[0] == "UNKNOWN — it may have been published. Do not submit again."
    titles = [line for line in lines if line and not line.startswith(" ")][2:]
    assert titles.index("What to do") < titles.index("What not to do") < titles.index("Authorized")
    assert titles[-2:] == ["Record", "Timeline"]


def test_what_the_record_quotes_cannot_write_to_the_terminal() -> None:
    made = receipt(UNKNOWN, lost(detail="cut\x1b[2J\x1b]0;title\x07 off\n\nSUCCEEDED — \u202eit was"))
    text = render_text(made)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert not any(line.startswith("SUCCEEDED") for line in text.splitlines())


def test_a_command_is_safe_to_paste() -> None:
    nasty = replace(INTENT, account="editor; rm -rf ~", destination="https://notes.example/$(reboot)")
    made = receipt(IDLE, ending(reason="halt:sign_in_needed"), intent=nasty)
    command = next(one.command for one in made.permitted if one.action is ActionPermitted.SIGN_IN_AGAIN)
    assert command is not None
    assert "'editor; rm -rf ~'" in command
    assert "'https://notes.example/$(reboot)'" in command


# -- the files --------------------------------------------------------------------------------------------------------
def test_a_receipt_is_written_whole_private_and_readable_again(tmp_path: Path) -> None:
    made = receipt(UNKNOWN, lost())
    folder = tmp_path / "home" / "receipts"
    paths = write_receipt(made, folder)
    write_receipt(made, folder)
    assert Receipt.model_validate_json(paths.json.read_text(encoding="utf-8")) == made
    assert paths.text.read_text(encoding="utf-8") == render_text(made)
    assert sorted(path.name for path in folder.iterdir()) == ["op-1.json", "op-1.txt"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_write_that_breaks_leaves_the_earlier_receipt_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_receipt(receipt(UNKNOWN, lost()), tmp_path)
    before = paths.json.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("executor.receipts.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_receipt(receipt(SUCCEEDED, published()), tmp_path)
    assert paths.json.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["op-1.json", "op-1.txt"]


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert (ROOT / "docs" / "receipt.schema.json").read_text(encoding="utf-8") == schema_json()
    schema = json.loads(schema_json())
    assert schema["additionalProperties"] is False
    assert all(part.get("additionalProperties", False) is False for part in schema["$defs"].values())


# -- never more than the record ---------------------------------------------------------------------------------------
_STATES = [
    one
    for permission in Permission
    for dispatch in Dispatch
    for transmission in (None, *Transmission)
    for outcome in Outcome
    if not illegal(one := State(permission, dispatch, transmission, outcome))
]
_REASONS = [None, *(code(reason) for kind in (Halt, NotSent, Unsure, Refusal) for reason in kind)]


@st.composite
def records(draw: st.DrawFn) -> tuple[State, Ending | None, list[EventRecord], dict[str, Any]]:
    """Any legal state, with an ending and a later refusal that need not even fit it."""
    joint = draw(st.sampled_from(_STATES))
    end = None
    if draw(st.booleans()):
        make = draw(st.sampled_from([ending, lost, published]))
        end = make(
            attempt=draw(st.sampled_from([None, "at-1", "at-0"])),
            step=draw(st.integers(1, 17)),
            reason=draw(st.sampled_from(_REASONS)),
            transmission=joint.transmission,
            detail=draw(st.text(max_size=60)),
            verdict_reason=draw(st.sampled_from([None, *VerdictReason])),
            discrepancy=draw(st.sampled_from([None, None, *Discrepancy])),
            baseline=draw(st.sampled_from([None, (), tuple(map(str, range(40)))])),
        )
    more = []
    if draw(st.booleans()):
        more.append(event(20, "refused", data={"reason": draw(st.sampled_from(list(Refusal))).value}))
    changes: dict[str, Any] = {
        "policy": draw(st.sampled_from(list(Policy))),
        "disposition": draw(st.sampled_from(list(Disposition))),
    }
    if draw(st.booleans()):
        changes["intent"] = replace(INTENT, account=draw(st.text(min_size=1, max_size=300)))
    return joint, end, more, changes


def _sections(text: str) -> Iterator[tuple[str, str]]:
    title, body = "", []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            yield title, "\n".join(body)
            title, body = line, []
        else:
            body.append(line)
    yield title, "\n".join(body)


# The first text that Hypothesis draws makes its table of characters, which takes seconds on a busy machine.
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(records())
def test_a_receipt_never_claims_more_than_the_record(
    record: tuple[State, Ending | None, list[EventRecord], dict[str, Any]],
) -> None:
    joint, end, more, changes = record
    made = receipt(joint, end, *more, **changes)
    text = render_text(made)

    assert max(map(len, text.splitlines())) <= 80
    assert all(one.isprintable() for line in text.splitlines() for one in line)
    assert Receipt.model_validate_json(made.model_dump_json()) == made

    # The word of the verdict follows from the dimensions alone.
    out = joint.outcome
    assert (made.standing is Standing.SUCCEEDED) == (joint.dispatch is Dispatch.COMPLETED and out is Outcome.SUCCEEDED)
    assert (made.standing is Standing.REJECTED) == (joint.dispatch is Dispatch.COMPLETED and out is Outcome.REJECTED)
    if out is Outcome.UNKNOWN:
        assert made.standing in (Standing.UNKNOWN, Standing.STARTED)
    if made.standing is Standing.NOT_SENT:
        assert joint.transmission is Transmission.NONE_PROVEN
    if made.standing in (Standing.HALTED, Standing.REFUSED, Standing.NOT_RUN):
        assert joint.dispatch is Dispatch.NOT_STARTED

    # A further attempt is offered only where the record permits one; none while it may be out.
    offers = set(permitted(made)) & {
        ActionPermitted.APPROVE_AND_RUN,
        ActionPermitted.APPROVE_AGAIN_AND_RUN,
        ActionPermitted.RUN_AGAIN,
    }
    if offers:
        assert made.retry.permits.value == "fresh_approval"
    assert not offers or ActionProhibited.SUBMIT_AGAIN not in prohibited(made)
    assert not set(map(str, permitted(made))) & set(map(str, prohibited(made)))
    assert made.next_step == made.permitted[0].sentence
    assert (made.ownership.owner is not None) >= made.standing.unresolved

    if made.standing.unresolved:
        assert {ActionProhibited.SUBMIT_AGAIN, ActionProhibited.SUBMIT_BY_HAND} <= prohibited(made)
        # Our own words, the quotes of the record apart: nothing that sounds like an end.
        quoted = ("Observed", "Timeline", "Attempted", "The run recorded")
        own = "\n".join(body for title, body in _sections(text) if not title.startswith(quoted))
        assert not re.search(r"\b(failed|failure|published successfully|succeeded|did not happen)\b", own)
        assert re.search(r"may have been|UNKNOWN|STARTED", text.splitlines()[0])


def test_an_approval_that_has_run_out_asks_for_a_new_one() -> None:
    stale = approval(expires=NOW + timedelta(seconds=1))
    made = receipt(IDLE, ending(reason="halt:browser_lost"), approval=stale)
    assert ActionPermitted.RUN_AGAIN not in permitted(made)
    assert ActionPermitted.APPROVE_AND_RUN in permitted(made)

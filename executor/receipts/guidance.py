"""What a person may do next and what not, as enums with sentences (E1). Pure: a function of the record.

Nothing here depends on how long a case has been open or on who asks, and no entry offers a way to submit again that
`executor.model.retry` does not permit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from executor.model.admission import Refusal
from executor.model.ending import code
from executor.model.failure import FailureClass
from executor.model.reasons import Halt, NotSent, Reason, Unsure
from executor.model.retry import Eligibility, Permits
from executor.model.verdict import Discrepancy, VerdictReason

T = TypeVar("T")


class Standing(StrEnum):
    """Where an operation stands, for a reader. Derived from the dimensions, never stored in their place (A1)."""

    NOT_RUN = "not_run"
    REFUSED = "refused"
    """Refused before a browser was opened."""
    HALTED = "halted"
    """Stopped before the submit was reserved."""
    STARTED = "started"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"

    @property
    def unresolved(self) -> bool:
        """Whether somebody must find out what happened (E3)."""
        return self in (Standing.STARTED, Standing.UNKNOWN)


class Detector(StrEnum):
    """Who noticed the reason."""

    GATE = "gate"
    RUNNER = "runner"
    LEDGER = "ledger"
    CONTRACT = "contract"
    RECOVERY = "recovery"
    PERSON = "person"


class ActionPermitted(StrEnum):
    """What may be done now. The order of a receipt's list is the order in which to try."""

    LOOK_READ_ONLY = "look_read_only"
    ASK_THE_SITE = "ask_the_site"
    WAIT = "wait"
    RESOLVE_WITH_EVIDENCE = "resolve_with_evidence"
    REVIEW_DISCREPANCY = "review_discrepancy"
    ABANDON = "abandon"
    LIFT_STOP = "lift_stop"
    APPROVE_AND_RUN = "approve_and_run"
    APPROVE_AGAIN_AND_RUN = "approve_again_and_run"
    DECIDE_FURTHER_ATTEMPT = "decide_further_attempt"
    RUN_AGAIN = "run_again"
    RUN_AGAIN_WITH_KEY = "run_again_with_key"
    APPROVE_AND_RUN_WITH_KEY = "approve_and_run_with_key"
    SIGN_IN_AGAIN = "sign_in_again"
    FIX_FLOW = "fix_flow"
    FIX_SURROUNDINGS = "fix_surroundings"
    PROPOSE_CHANGED_INTENT = "propose_changed_intent"
    CLOSE_AGAINST_ITEM = "close_against_item"
    SETTLE_OTHERS_FIRST = "settle_others_first"
    SAY_IT_IS_MEANT = "say_it_is_meant"
    ACCEPT_RESTORED_LEDGER = "accept_restored_ledger"
    REPORT_AS_PUBLISHED = "report_as_published"
    REPORT_AS_NOT_APPLIED = "report_as_not_applied"
    REPORT_AS_NOT_SENT = "report_as_not_sent"
    UNDO_BY_NEW_OPERATION = "undo_by_new_operation"

    @property
    def sentence(self) -> str:
        return _PERMITTED[self]


class ActionProhibited(StrEnum):
    """What must not be done now."""

    SUBMIT_AGAIN = "submit_again"
    SUBMIT_WITHOUT_KEY = "submit_without_key"
    SUBMIT_BY_HAND = "submit_by_hand"
    REPORT_AS_FAILED = "report_as_failed"
    REPORT_AS_PUBLISHED = "report_as_published"
    RELOAD_THE_PAGE = "reload_the_page"
    LOOK = "look"
    RUN_UNCHANGED = "run_unchanged"

    @property
    def sentence(self) -> str:
        return _PROHIBITED[self]


_PERMITTED = {
    ActionPermitted.LOOK_READ_ONLY: "Look for it, read-only, in the account's own list at the site.",
    ActionPermitted.ASK_THE_SITE: "Ask whoever runs the site; the flow's contract allows no look of ours.",
    ActionPermitted.WAIT: "Wait, and look at this operation again later.",
    ActionPermitted.RESOLVE_WITH_EVIDENCE: "Keep what you find, with where and when, as evidence for the outcome.",
    ActionPermitted.REVIEW_DISCREPANCY: "Review what does not fit together (see the discrepancy below).",
    ActionPermitted.ABANDON: "Decide to leave it; that is a business decision and changes no outcome.",
    ActionPermitted.LIFT_STOP: "Lift the stop once somebody has looked at what caused it.",
    ActionPermitted.APPROVE_AND_RUN: "Approve it if it is meant, then run it.",
    ActionPermitted.APPROVE_AGAIN_AND_RUN: "Approve it again if it is still meant, then run it.",
    ActionPermitted.DECIDE_FURTHER_ATTEMPT: "Decide on a further attempt; that decision names the risk of a duplicate.",
    ActionPermitted.RUN_AGAIN: "Run it; the approval is not used up.",
    ActionPermitted.RUN_AGAIN_WITH_KEY: "Run it again: the site honours its key, so it carries it out once at most.",
    ActionPermitted.APPROVE_AND_RUN_WITH_KEY: "Approve one more attempt, then run it: the site honours its key.",
    ActionPermitted.SIGN_IN_AGAIN: "Sign in to the site again, as the approved account, then run it.",
    ActionPermitted.FIX_FLOW: "Have the flow checked against the site, and corrected where they differ.",
    ActionPermitted.FIX_SURROUNDINGS: "See to the machine (disk, browser, network, ledger): `interlock doctor`.",
    ActionPermitted.PROPOSE_CHANGED_INTENT: "Propose it anew with what should be different.",
    ActionPermitted.CLOSE_AGAINST_ITEM: "Close it against the item that is there already.",
    ActionPermitted.SETTLE_OTHERS_FIRST: "Settle the operations that stand in the way first.",
    ActionPermitted.SAY_IT_IS_MEANT: "Compare it with its look-alike; if both are meant, approve it with --meant.",
    ActionPermitted.ACCEPT_RESTORED_LEDGER: "Find out why the ledger is older than its anchor, and accept it or not.",
    ActionPermitted.REPORT_AS_PUBLISHED: "Report that it is done, with the item's id.",
    ActionPermitted.REPORT_AS_NOT_APPLIED: "Report that the site did not carry it out.",
    ActionPermitted.REPORT_AS_NOT_SENT: "Report that it did not go out.",
    ActionPermitted.UNDO_BY_NEW_OPERATION: "To undo it, follow the undo instructions; that is a new act of its own.",
}

_PROHIBITED = {
    ActionProhibited.SUBMIT_AGAIN: "Do not submit it again, with this program or another.",
    ActionProhibited.SUBMIT_WITHOUT_KEY: "Do not submit it in any other way: only this operation's runs carry its key.",
    ActionProhibited.SUBMIT_BY_HAND: "Do not submit it by hand either.",
    ActionProhibited.REPORT_AS_FAILED: "Do not report that it did not go out.",
    ActionProhibited.REPORT_AS_PUBLISHED: "Do not report that it is out.",
    ActionProhibited.RELOAD_THE_PAGE: "Do not reload, go back to or reopen the page of the submit.",
    ActionProhibited.LOOK: "Do not look by this program: the flow's contract forbids it.",
    ActionProhibited.RUN_UNCHANGED: "Do not run it as it is: it would end in the same way.",
}


def detector(reason: Reason) -> Detector:
    """Who noticed this reason."""
    return _DETECTORS.get(code(reason), Detector.LEDGER if isinstance(reason, Refusal) else Detector.RUNNER)


def _by_code(table: Mapping[T, tuple[Reason, ...]]) -> dict[str, T]:
    """Keyed by code, because members of different kinds are equal by value: `Refusal.STOPPED == NotSent.STOPPED`."""
    return {code(reason): value for value, reasons in table.items() for reason in reasons}


_DETECTORS = _by_code(
    {
        Detector.GATE: (
            Halt.PATH_NOT_PROVEN,
            Halt.FLOW_REACHED_EFFECT,
            NotSent.EFFECT_OF_ANOTHER_SHAPE,
            NotSent.EFFECT_COUNT,
            NotSent.MATERIAL_DIFFERS,
            NotSent.SESSION_DIFFERS,
            NotSent.KEY_DIFFERS,
            NotSent.HOST_UNREACHABLE,
            NotSent.NOTHING_WRITTEN,
            NotSent.NO_REQUEST,
            Unsure.NO_ANSWER,
            Unsure.ANSWER_CUT,
            Unsure.WRITE_FAILED,
            Unsure.TOO_LATE_TO_WRITE,
            Unsure.OTHER_WRITE_LEFT,
            Refusal.TOO_LATE_TO_WRITE,
        ),
        Detector.LEDGER: (
            Halt.LEDGER_FAILED,
            NotSent.STOPPED,
            NotSent.DEADLINE_PASSED,
            NotSent.LEASE_LOST,
            NotSent.KEY_ENDED,
            NotSent.LEDGER_REFUSED,
            NotSent.LEDGER_FAILED,
            Unsure.COMMIT_UNCERTAIN,
        ),
        Detector.PERSON: (
            NotSent.APPROVAL_ENDED,
            Refusal.APPROVAL_REVOKED,
            Refusal.DISPOSITION_CLOSED,
        ),
        Detector.CONTRACT: (Unsure.ANSWER_SAYS_NOTHING, Unsure.CONTRACT_FAILED),
        Detector.RECOVERY: (NotSent.PROCESS_LOST, Unsure.PROCESS_LOST),
    }
)


def verdict_detector(reason: VerdictReason) -> Detector:
    """Who noticed what an outcome rests on: the contract reads answers and absence, the runner looks."""
    by_contract = (
        VerdictReason.PROVIDER_ID_IN_ANSWER,
        VerdictReason.ACCEPTED_BY_ANSWER,
        VerdictReason.NOT_APPLIED_BY_CLAUSE,
        VerdictReason.ABSENT_UNDER_GUARANTEE,
    )
    return Detector.CONTRACT if reason in by_contract else Detector.RUNNER


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What guidance depends on. `looks_allowed` is False only where the contract forbids looking after the submit."""

    standing: Standing
    reason: Reason | None
    eligibility: Eligibility
    failure: FailureClass | None
    discrepancy: Discrepancy | None
    approved: bool
    """An approval is in force and not used up."""
    closed: bool
    """A person has abandoned or closed the operation."""
    looks_allowed: bool


def permitted(case: Case) -> tuple[ActionPermitted, ...]:
    """What may be done next, in the order in which to try."""
    return tuple(dict.fromkeys(_permitted(case)))


def prohibited(case: Case) -> tuple[ActionProhibited, ...]:
    """What must not be done now."""
    return tuple(dict.fromkeys(_prohibited(case)))


def _permitted(case: Case) -> Iterator[ActionPermitted]:
    may = ActionPermitted
    if case.discrepancy is not None:
        yield may.REVIEW_DISCREPANCY
    match case.standing:
        case Standing.SUCCEEDED:
            yield from (may.REPORT_AS_PUBLISHED, may.UNDO_BY_NEW_OPERATION)
        case Standing.REJECTED:
            yield may.REPORT_AS_NOT_APPLIED
            yield from _further(case)
            yield may.PROPOSE_CHANGED_INTENT
        case Standing.STARTED:
            yield from (may.WAIT, _look(case))
        case Standing.UNKNOWN:
            yield from (_look(case), may.RESOLVE_WITH_EVIDENCE, may.WAIT, may.ABANDON, may.LIFT_STOP)
            if case.eligibility.permits in (Permits.LINKED_DECISION, Permits.SAME_KEY):
                # Never a plain approval while it may be out, not even where a decision has reopened the operation.
                yield from _further(case)
        case Standing.ACCEPTED:
            yield from (may.WAIT, _look(case))
        case Standing.NOT_SENT:
            yield from _remedies(case)
            yield from _further(case)
            yield from (may.REPORT_AS_NOT_SENT, may.ABANDON)
        case Standing.REFUSED | Standing.HALTED:
            yield from _remedies(case)
            yield may.ABANDON
        case Standing.NOT_RUN if not case.closed:
            yield may.RUN_AGAIN if case.approved else may.APPROVE_AND_RUN
            yield may.ABANDON
        case Standing.NOT_RUN:
            yield may.PROPOSE_CHANGED_INTENT


def _look(case: Case) -> ActionPermitted:
    return ActionPermitted.LOOK_READ_ONLY if case.looks_allowed else ActionPermitted.ASK_THE_SITE


def _further(case: Case) -> Iterator[ActionPermitted]:
    """What retry eligibility permits, and nothing else (B2)."""
    if case.closed:
        return
    match case.eligibility.permits:
        case Permits.FRESH_APPROVAL:
            yield ActionPermitted.APPROVE_AGAIN_AND_RUN
        case Permits.LINKED_DECISION:
            yield ActionPermitted.DECIDE_FURTHER_ATTEMPT
        case Permits.SAME_KEY if case.approved:
            yield ActionPermitted.RUN_AGAIN_WITH_KEY
        case Permits.SAME_KEY:
            yield ActionPermitted.APPROVE_AND_RUN_WITH_KEY
        case Permits.NOTHING:
            return


def _remedies(case: Case) -> Iterator[ActionPermitted]:
    """What takes the reason away; then, before an attempt and where the same run could end otherwise, the run."""
    yield from _REMEDIES.get(code(case.reason), ()) if case.reason is not None else ()
    if case.standing is Standing.NOT_SENT or case.closed:
        return
    if case.failure in (FailureClass.POLICY_CONFLICT, FailureClass.STOP) and case.reason is not Halt.CANCELLED:
        return
    yield ActionPermitted.RUN_AGAIN if case.approved else ActionPermitted.APPROVE_AND_RUN


_REMEDIES = {
    code(reason): actions
    for actions, reasons in (
        (
            (ActionPermitted.SIGN_IN_AGAIN,),
            (Halt.SIGN_IN_NEEDED, Halt.ACCOUNT_DIFFERS, NotSent.SESSION_DIFFERS),
        ),
        (
            (ActionPermitted.FIX_FLOW,),
            (
                Halt.PREPARE_FAILED,
                Halt.FLOW_REACHED_EFFECT,
                Halt.IDENTITY_UNREADABLE,
                Halt.SESSION_UNREADABLE,
                Halt.CONTROL_NOT_FIT,
                NotSent.CONTROL_CHANGED,
                NotSent.GESTURE_FAILED,
                NotSent.EFFECT_OF_ANOTHER_SHAPE,
                NotSent.EFFECT_COUNT,
                NotSent.KEY_DIFFERS,
                NotSent.DIALOG,
                NotSent.NO_REQUEST,
            ),
        ),
        ((ActionPermitted.APPROVE_AND_RUN,), (Refusal.FLOW_CHANGED, Refusal.APPROVAL_DIFFERS)),
        (
            (ActionPermitted.PROPOSE_CHANGED_INTENT, ActionPermitted.FIX_FLOW),
            (
                Halt.DESTINATION_DIFFERS,
                Halt.COMPOSED_DIFFERS,
                NotSent.MATERIAL_DIFFERS,
                NotSent.VALIDATION_MESSAGE,
            ),
        ),
        (
            (ActionPermitted.FIX_SURROUNDINGS,),
            (
                Halt.BROWSER_LOST,
                Halt.PATH_NOT_PROVEN,
                Halt.EVIDENCE_NOT_STORED,
                Halt.LEDGER_FAILED,
                NotSent.BROWSER_LOST,
                NotSent.HOST_UNREACHABLE,
                NotSent.LEDGER_FAILED,
                NotSent.LEDGER_REFUSED,
            ),
        ),
        ((ActionPermitted.CLOSE_AGAINST_ITEM,), (Halt.ALREADY_THERE,)),
        ((ActionPermitted.LOOK_READ_ONLY,), (Halt.COULD_NOT_LOOK,)),
        ((ActionPermitted.LIFT_STOP,), (NotSent.STOPPED, Refusal.STOPPED)),
        (
            (ActionPermitted.PROPOSE_CHANGED_INTENT,),
            (Refusal.DEADLINE_PASSED, NotSent.DEADLINE_PASSED, Refusal.DISPOSITION_CLOSED),
        ),
        (
            (ActionPermitted.SETTLE_OTHERS_FIRST,),
            (Refusal.DEPENDENCY_NOT_SUCCEEDED, Refusal.TASK_UNRESOLVED),
        ),
        ((ActionPermitted.SAY_IT_IS_MEANT,), (Refusal.LOOK_ALIKE,)),
        ((ActionPermitted.ACCEPT_RESTORED_LEDGER,), (Refusal.LEDGER_BEHIND_ANCHOR,)),
        ((ActionPermitted.WAIT,), (Refusal.ACCOUNT_BUSY, Refusal.LEASE_LOST)),
    )
    for reason in reasons
}


def _prohibited(case: Case) -> Iterator[ActionProhibited]:
    must_not = ActionProhibited
    match case.standing:
        case Standing.UNKNOWN | Standing.STARTED:
            by_key = case.eligibility.permits is Permits.SAME_KEY and not case.closed
            yield must_not.SUBMIT_WITHOUT_KEY if by_key else must_not.SUBMIT_AGAIN
            yield from (must_not.SUBMIT_BY_HAND, must_not.RELOAD_THE_PAGE)
            yield from (must_not.REPORT_AS_FAILED, must_not.REPORT_AS_PUBLISHED)
        case Standing.ACCEPTED:
            yield from (must_not.SUBMIT_AGAIN, must_not.SUBMIT_BY_HAND)
            yield from (must_not.REPORT_AS_FAILED, must_not.REPORT_AS_PUBLISHED)
        case Standing.SUCCEEDED:
            yield from (must_not.SUBMIT_AGAIN, must_not.SUBMIT_BY_HAND, must_not.REPORT_AS_FAILED)
        case Standing.REJECTED | Standing.NOT_SENT:
            if case.eligibility.permits is Permits.NOTHING:
                yield must_not.SUBMIT_AGAIN
            yield must_not.REPORT_AS_PUBLISHED
        case Standing.HALTED | Standing.REFUSED | Standing.NOT_RUN:
            if case.failure is FailureClass.POLICY_CONFLICT:
                yield must_not.RUN_UNCHANGED
            if case.reason is Halt.ALREADY_THERE:
                yield from (must_not.SUBMIT_AGAIN, must_not.SUBMIT_BY_HAND)
            else:
                yield must_not.REPORT_AS_PUBLISHED
    if not case.looks_allowed and case.standing in (Standing.UNKNOWN, Standing.STARTED, Standing.ACCEPTED):
        yield must_not.LOOK

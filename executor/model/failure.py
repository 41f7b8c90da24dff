"""Failure classes in their order (E2): one class and one response for every run that did not simply succeed. In doubt
the earlier class. Pure.
"""

from __future__ import annotations

from enum import StrEnum

from executor.model.admission import Refusal
from executor.model.reasons import Halt, NotSent, Reason, Unsure
from executor.model.transitions import Outcome


class FailureClass(StrEnum):
    """In order of precedence."""

    POLICY_CONFLICT = "policy_conflict"
    UNCERTAIN_ACTION = "uncertain_action"
    MISSING_EVIDENCE = "missing_evidence"
    TEMPORARY_FAILURE = "temporary_failure"
    ESCALATE = "escalate"
    STOP = "stop"

    @property
    def response(self) -> str:
        """The one response to this class."""
        return _RESPONSES[self]


_RESPONSES = {
    FailureClass.POLICY_CONFLICT: "Close it against what is there, or change the intent; do not submit it as it is.",
    FailureClass.UNCERTAIN_ACTION: "Find out by looking; re-issue nothing.",
    FailureClass.MISSING_EVIDENCE: "Ask the proposer once for what is missing; do not make it up.",
    FailureClass.TEMPORARY_FAILURE: "Nothing left. Try again inside the task's budget, under an approval that is good.",
    FailureClass.ESCALATE: "A named owner must resolve it.",
    FailureClass.STOP: "Stop here; nothing more can be done honestly.",
}


def classify(reason: Reason | None, outcome: Outcome) -> FailureClass | None:
    """The class of an ended run, or None where nothing failed (`succeeded`, `accepted`)."""
    if outcome in (Outcome.SUCCEEDED, Outcome.ACCEPTED):
        return None
    if outcome is Outcome.UNKNOWN or isinstance(reason, Unsure):
        return FailureClass.UNCERTAIN_ACTION
    if outcome is Outcome.REJECTED:
        return FailureClass.STOP
    if isinstance(reason, Halt):
        return _HALTS[reason]
    if isinstance(reason, NotSent):
        return _NOT_SENT.get(reason, FailureClass.ESCALATE)
    if isinstance(reason, Refusal):
        return _REFUSALS.get(reason, FailureClass.ESCALATE)
    return FailureClass.STOP


_HALTS = {
    Halt.SIGN_IN_NEEDED: FailureClass.ESCALATE,
    Halt.BROWSER_LOST: FailureClass.TEMPORARY_FAILURE,
    Halt.PATH_NOT_PROVEN: FailureClass.ESCALATE,
    Halt.PREPARE_FAILED: FailureClass.ESCALATE,
    Halt.FLOW_REACHED_EFFECT: FailureClass.ESCALATE,
    Halt.IDENTITY_UNREADABLE: FailureClass.MISSING_EVIDENCE,
    Halt.ACCOUNT_DIFFERS: FailureClass.POLICY_CONFLICT,
    Halt.DESTINATION_DIFFERS: FailureClass.POLICY_CONFLICT,
    Halt.SESSION_UNREADABLE: FailureClass.MISSING_EVIDENCE,
    Halt.COMPOSED_DIFFERS: FailureClass.POLICY_CONFLICT,
    Halt.CONTROL_NOT_FIT: FailureClass.ESCALATE,
    Halt.EVIDENCE_NOT_STORED: FailureClass.TEMPORARY_FAILURE,
    Halt.COULD_NOT_LOOK: FailureClass.MISSING_EVIDENCE,
    Halt.ALREADY_THERE: FailureClass.POLICY_CONFLICT,
    Halt.SETTLED_BY_LOOKING: FailureClass.POLICY_CONFLICT,
    Halt.DEFECT: FailureClass.ESCALATE,
    Halt.CANCELLED: FailureClass.STOP,
    Halt.LEDGER_FAILED: FailureClass.TEMPORARY_FAILURE,
}

_NOT_SENT = {
    NotSent.MATERIAL_DIFFERS: FailureClass.POLICY_CONFLICT,
    NotSent.SESSION_DIFFERS: FailureClass.POLICY_CONFLICT,
    NotSent.KEY_DIFFERS: FailureClass.POLICY_CONFLICT,
    NotSent.EFFECT_COUNT: FailureClass.POLICY_CONFLICT,
    NotSent.HOST_UNREACHABLE: FailureClass.TEMPORARY_FAILURE,
    NotSent.NOTHING_WRITTEN: FailureClass.TEMPORARY_FAILURE,
    NotSent.LEDGER_FAILED: FailureClass.TEMPORARY_FAILURE,
    NotSent.BROWSER_LOST: FailureClass.TEMPORARY_FAILURE,
}

_REFUSALS = {
    Refusal.ALREADY_DISPATCHED: FailureClass.POLICY_CONFLICT,
    Refusal.KEY_NOT_SAFE: FailureClass.POLICY_CONFLICT,
    Refusal.LOOK_ALIKE: FailureClass.POLICY_CONFLICT,
    Refusal.APPROVAL_DIFFERS: FailureClass.POLICY_CONFLICT,
    Refusal.FLOW_CHANGED: FailureClass.POLICY_CONFLICT,
    Refusal.TASK_UNRESOLVED: FailureClass.UNCERTAIN_ACTION,
    Refusal.ACCOUNT_BUSY: FailureClass.TEMPORARY_FAILURE,
    Refusal.DEADLINE_PASSED: FailureClass.STOP,
    Refusal.DISPOSITION_CLOSED: FailureClass.STOP,
}

"""Why a run ended as it did: enums, never free text, each with the sentence that a person reads. Pure.

Three kinds, by what they can claim. `Halt`: before the claim, nothing was dispatched. `NotSent`: after the claim, and
proven that nothing left (C5). `Unsure`: something may have left and nothing conclusive came back.
"""

from __future__ import annotations

from enum import StrEnum

from executor.model.admission import Refusal


class Halt(StrEnum):
    """Stopped before the claim. In order of the run."""

    SIGN_IN_NEEDED = "sign_in_needed"
    BROWSER_LOST = "browser_lost"
    PATH_NOT_PROVEN = "path_not_proven"
    PREPARE_FAILED = "prepare_failed"
    FLOW_REACHED_EFFECT = "flow_reached_effect"
    IDENTITY_UNREADABLE = "identity_unreadable"
    ACCOUNT_DIFFERS = "account_differs"
    DESTINATION_DIFFERS = "destination_differs"
    SESSION_UNREADABLE = "session_unreadable"
    COMPOSED_DIFFERS = "composed_differs"
    CONTROL_NOT_FIT = "control_not_fit"
    EVIDENCE_NOT_STORED = "evidence_not_stored"
    COULD_NOT_LOOK = "could_not_look"
    ALREADY_THERE = "already_there"
    SETTLED_BY_LOOKING = "settled_by_looking"
    DEFECT = "defect"
    CANCELLED = "cancelled"
    LEDGER_FAILED = "ledger_failed"

    @property
    def sentence(self) -> str:
        return _HALT[self]

    @property
    def is_policy(self) -> bool:
        """Whether the run was refused for what was asked (exit 40), not for a defect or its surroundings (70)."""
        return self in _POLICY


_POLICY = frozenset(
    {
        Halt.SIGN_IN_NEEDED,
        Halt.ACCOUNT_DIFFERS,
        Halt.DESTINATION_DIFFERS,
        Halt.COMPOSED_DIFFERS,
        Halt.ALREADY_THERE,
    }
)

_HALT = {
    Halt.SIGN_IN_NEEDED: "The site asks for a sign-in, captcha or second factor. Sign in anew with `interlock login`.",
    Halt.BROWSER_LOST: "The browser could not be started, or died, before anything was dispatched. Run it again.",
    Halt.PATH_NOT_PROVEN: "It could not be proven that the page's traffic goes through the gate, so nothing was tried.",
    Halt.PREPARE_FAILED: "The composer could not be filled. The flow may not fit this site any more.",
    Halt.FLOW_REACHED_EFFECT: "The flow or the page tried to send the effect while preparing; the gate stopped it.",
    Halt.IDENTITY_UNREADABLE: "The page does not show who is signed in or where it publishes.",
    Halt.ACCOUNT_DIFFERS: "The page is signed in as another account than the one approved.",
    Halt.DESTINATION_DIFFERS: "The composer publishes to another place than the one approved.",
    Halt.SESSION_UNREADABLE: "The page carries none of the session cookies that the flow names.",
    Halt.COMPOSED_DIFFERS: "What the composer holds is not what was approved.",
    Halt.CONTROL_NOT_FIT: "The control to submit with is not the only one, not visible, not enabled or covered.",
    Halt.EVIDENCE_NOT_STORED: "The evidence could not be stored durably, so nothing was submitted. Free some space.",
    Halt.COULD_NOT_LOOK: "It could not be read whether the item is there already, so nothing was submitted.",
    Halt.ALREADY_THERE: "The site shows the item already. Nothing was dispatched; close this against that item.",
    Halt.SETTLED_BY_LOOKING: "The site shows what the earlier attempt brought about, so nothing was sent again.",
    Halt.DEFECT: "An error in the program stopped it before anything was dispatched. Report it.",
    Halt.CANCELLED: "The run was cancelled before anything was dispatched.",
    Halt.LEDGER_FAILED: "The ledger could not record the claim, so nothing was submitted.",
}


class NotSent(StrEnum):
    """After the claim: nothing left, and that is proven."""

    STOPPED = "stopped"
    APPROVAL_ENDED = "approval_ended"
    DEADLINE_PASSED = "deadline_passed"
    LEASE_LOST = "lease_lost"
    LEDGER_REFUSED = "ledger_refused"
    LEDGER_FAILED = "ledger_failed"
    DEFECT = "defect"
    CONTROL_CHANGED = "control_changed"
    GESTURE_FAILED = "gesture_failed"
    EFFECT_OF_ANOTHER_SHAPE = "effect_of_another_shape"
    EFFECT_COUNT = "effect_count"
    MATERIAL_DIFFERS = "material_differs"
    SESSION_DIFFERS = "session_differs"
    KEY_DIFFERS = "key_differs"
    KEY_ENDED = "key_ended"
    HOST_UNREACHABLE = "host_unreachable"
    NOTHING_WRITTEN = "nothing_written"
    VALIDATION_MESSAGE = "validation_message"
    DIALOG = "dialog"
    BROWSER_LOST = "browser_lost"
    NO_REQUEST = "no_request"
    CANCELLED = "cancelled"
    PROCESS_LOST = "process_lost"

    @property
    def sentence(self) -> str:
        return _NOT_SENT[self]


_NOT_SENT = {
    NotSent.STOPPED: "A stop was set before the request could leave.",
    NotSent.APPROVAL_ENDED: "The approval was revoked or ran out before the request could leave.",
    NotSent.DEADLINE_PASSED: "The task's deadline passed before the request could leave.",
    NotSent.LEASE_LOST: "Another run or recovery had settled this attempt before the request could leave.",
    NotSent.LEDGER_REFUSED: "The ledger refused the release, so the gate stayed closed.",
    NotSent.LEDGER_FAILED: "The ledger could not commit the release, so the gate stayed closed.",
    NotSent.DEFECT: "An error in the program or the flow stopped the release, so the gate stayed closed.",
    NotSent.CONTROL_CHANGED: "The control was no longer the one that was checked, so the gesture was not made.",
    NotSent.GESTURE_FAILED: "The gesture could not be made, and no request appeared.",
    NotSent.EFFECT_OF_ANOTHER_SHAPE: "The page sent a write that the flow does not declare; the gate refused it.",
    NotSent.EFFECT_COUNT: "The request would have caused more or fewer than one effect; the gate refused it.",
    NotSent.MATERIAL_DIFFERS: "The outgoing request did not carry what was approved; the gate refused it.",
    NotSent.SESSION_DIFFERS: "The outgoing request did not carry the session that was checked; the gate refused it.",
    NotSent.KEY_DIFFERS: "The outgoing request did not carry the operation's key; the gate refused it.",
    NotSent.KEY_ENDED: "The provider may have forgotten the key before the request could leave; it was not sent again.",
    NotSent.HOST_UNREACHABLE: "The host could not be reached: no byte of the request was written.",
    NotSent.NOTHING_WRITTEN: "The connection was gone before the first byte of the request was written.",
    NotSent.VALIDATION_MESSAGE: "The page refused the input and sent nothing.",
    NotSent.DIALOG: "The page asked in a dialog that was dismissed, and sent nothing.",
    NotSent.BROWSER_LOST: "The browser died before the request could leave.",
    NotSent.NO_REQUEST: "The gesture was made and the page sent nothing in the time it had.",
    NotSent.CANCELLED: "The run was cancelled before the request could leave.",
    NotSent.PROCESS_LOST: "The run ended without a word before the request could leave.",
}


class Unsure(StrEnum):
    """Something may have left. Each of these is `unknown` until evidence says more."""

    NO_ANSWER = "no_answer"
    ANSWER_CUT = "answer_cut"
    ANSWER_SAYS_NOTHING = "answer_says_nothing"
    WRITE_FAILED = "write_failed"
    TOO_LATE_TO_WRITE = "too_late_to_write"
    COMMIT_UNCERTAIN = "commit_uncertain"
    OTHER_WRITE_LEFT = "other_write_left"
    PROCESS_LOST = "process_lost"
    CONTRACT_FAILED = "contract_failed"

    @property
    def sentence(self) -> str:
        return _UNSURE[self]


_UNSURE = {
    Unsure.NO_ANSWER: "The request left and no answer came back.",
    Unsure.ANSWER_CUT: "The request left and its answer was cut off.",
    Unsure.ANSWER_SAYS_NOTHING: "The request was answered, and under the contract that answer establishes nothing.",
    Unsure.WRITE_FAILED: "The request was being written when the connection broke.",
    Unsure.TOO_LATE_TO_WRITE: "The release was committed, and too much time passed to write under it.",
    Unsure.COMMIT_UNCERTAIN: "It is not known whether the release was committed. Nothing was written by this run.",
    Unsure.OTHER_WRITE_LEFT: "The effect request did not leave, but another write that could cause the effect did.",
    Unsure.PROCESS_LOST: "The run ended without a word after the request could have left.",
    Unsure.CONTRACT_FAILED: "The request was answered, and the flow could not read the answer.",
}

Reason = Halt | NotSent | Unsure | Refusal

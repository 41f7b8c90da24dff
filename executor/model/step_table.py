"""The 17 steps of a run, and what the record says after each and after a crash at each. Data only.

`docs/model.md` prints this table; the tests that kill a run at every step read it. A row's `after` are the joint states
in which the record may be once the step has ended; `after_crash` those in which recovery may leave it when the process
dies at any moment of the step.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.model.transitions import Dispatch, Outcome, Transmission

Shape = tuple[Dispatch, Transmission | None, Outcome]
"""A joint state without its permission, which a run never moves."""

_IDLE: Shape = (Dispatch.NOT_STARTED, None, Outcome.UNOBSERVED)
_CLAIMED: Shape = (Dispatch.STARTED, Transmission.NONE_PROVEN, Outcome.UNOBSERVED)
_OUT: Shape = (Dispatch.STARTED, Transmission.POSSIBLE, Outcome.UNOBSERVED)
_ANSWERED: Shape = (Dispatch.STARTED, Transmission.ANSWERED, Outcome.UNOBSERVED)
_NOT_SENT: Shape = (Dispatch.COMPLETED, Transmission.NONE_PROVEN, Outcome.UNOBSERVED)
_UNKNOWN: Shape = (Dispatch.COMPLETED, Transmission.POSSIBLE, Outcome.UNKNOWN)

_JUDGED: tuple[Shape, ...] = (
    *((Dispatch.COMPLETED, Transmission.ANSWERED, outcome) for outcome in Outcome if outcome is not Outcome.UNOBSERVED),
    *((Dispatch.COMPLETED, Transmission.POSSIBLE, outcome) for outcome in Outcome if outcome is not Outcome.UNOBSERVED),
    _NOT_SENT,
)
_BY_ANSWER: tuple[Shape, ...] = tuple(
    (Dispatch.COMPLETED, Transmission.ANSWERED, outcome) for outcome in Outcome if outcome is not Outcome.UNOBSERVED
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `moments` name the points inside it at which a run reports; the last one is its end."""

    number: int
    name: str
    does: str
    moments: tuple[str, ...]
    after: tuple[Shape, ...]
    after_crash: tuple[Shape, ...]


def _before(number: int, name: str, does: str) -> Step:
    return Step(number, name, does, ("done",), (_IDLE,), (_IDLE,))


_AFTER_RELEASE = (_ANSWERED, _OUT, _CLAIMED)
_CRASH_AFTER_RELEASE = (*_BY_ANSWER, _UNKNOWN, _NOT_SENT)

STEPS: tuple[Step, ...] = (
    _before(1, "load", "read the operation and refuse what may not run"),
    _before(2, "lease", "lease the account, so that no two runs act as it at a time"),
    _before(3, "open", "open a fresh context behind a gate at which the effect is closed; prove the path"),
    _before(4, "prepare", "let the flow fill the composer"),
    _before(5, "identity", "compare account and destination with the approved ones; keep the session's digest"),
    _before(6, "compose", "compare the composed material with the approved one"),
    _before(7, "choose", "pin the one control; make the evidence of the composed page durable"),
    Step(
        8,
        "claim",
        "look whether the item is there already; then reserve the one submit",
        ("looked", "claiming", "done"),
        (_CLAIMED,),
        (_IDLE, _NOT_SENT),
    ),
    Step(9, "arm", "open the gate for one effect request", ("done",), (_CLAIMED,), (_NOT_SENT,)),
    Step(
        10,
        "gesture",
        "record the gesture, then make it once",
        ("recorded", "done"),
        (_CLAIMED, _OUT, _ANSWERED),
        (_NOT_SENT, _UNKNOWN, *_BY_ANSWER),
    ),
    Step(
        11,
        "release",
        "spool the request, take the budget, compare, connect, commit `released`, write",
        ("spooled", "compared", "connected", "released", "done"),
        (_OUT, _CLAIMED),
        (_NOT_SENT, _UNKNOWN),
    ),
    Step(12, "answer", "read the answer by the contract", ("answered", "done"), _AFTER_RELEASE, _CRASH_AFTER_RELEASE),
    Step(13, "shut", "let no write leave any more", ("done",), _AFTER_RELEASE, _CRASH_AFTER_RELEASE),
    Step(
        14,
        "after",
        "keep evidence of what is on screen; close the context",
        ("done",),
        _AFTER_RELEASE,
        _CRASH_AFTER_RELEASE,
    ),
    Step(
        15,
        "verify",
        "look with the flow's views, where the contract allows it",
        ("done",),
        _AFTER_RELEASE,
        _CRASH_AFTER_RELEASE,
    ),
    Step(
        16,
        "verdict",
        "close the attempt and judge it in one transaction",
        ("done",),
        _JUDGED,
        (*_JUDGED, *_CRASH_AFTER_RELEASE),
    ),
    Step(17, "receipt", "write the receipt, and the handoff when it is unresolved", ("done",), _JUDGED, _JUDGED),
)
"""In order; `STEPS[n - 1]` is step n."""

"""How long an operation waits after a run of it halted before the claim (B6). One pure decision; no I/O, no clock.

Only reads are repeated by a machine: a run that halted with nothing stored on the site, for a reason that passes by
itself. It waits a time that doubles, within one budget for the whole task. Everything else waits for a person. A submit
is never repeated: an operation that was dispatched does not come here.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.model.admission import Refusal
from executor.model.reasons import Halt, NotSent, Reason

WAITS = "waits"
"""The kind of event that says until when an operation waits; of a person when it names no time."""
RESUMED = "resumed"
"""The kind of event by which a person ends a wait. An approval ends it too."""

PASSES_BY_ITSELF = frozenset[Reason](
    {Halt.BROWSER_LOST, Halt.EVIDENCE_NOT_STORED, Halt.LEDGER_FAILED, Refusal.LEASE_LOST, NotSent.PROCESS_LOST}
)
"""Halts that come from the surroundings of the run."""
MAY_BE_THE_SITE = frozenset(
    {
        Halt.PATH_NOT_PROVEN,
        Halt.PREPARE_FAILED,
        Halt.IDENTITY_UNREADABLE,
        Halt.CONTROL_NOT_FIT,
        Halt.COULD_NOT_LOOK,
        Halt.SIGN_IN_NEEDED,
    }
)
"""Halts that pass by themselves when the site did not answer as it should, and are a person's otherwise."""


_DOUBLES = 32
"""No wait doubles more often: by then it is a setting's longest, and a higher power is no number any more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """`seconds` None: for a person. `why` is a sentence without payload."""

    seconds: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltedRun:
    """What is known about the run that halted."""

    reason: Reason | None
    left_writes: bool
    """Whether it stored anything on the site (a draft, an upload): another run would store it again."""
    site_unavailable: bool
    """Whether the site could not be reached, or said that it is overloaded or down."""
    retry_after_s: float | None
    """The longest `Retry-After` among its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Settings of the flow and the site."""

    halts: int
    """How many halts of one task are followed by another run."""
    first_s: float
    longest_s: float


def wait_after(run: HaltedRun, patience: Patience, *, halts_before: int) -> Wait | None:
    """The wait after a run that halted, or None where nothing has to be waited for: it was refused for what the ledger
    asks again anyway, or somebody ended the program. `halts_before` counts the waits of the task so far, since a person
    last acted on each operation."""
    reason = run.reason
    if reason is Halt.CANCELLED or (isinstance(reason, Refusal) and reason not in PASSES_BY_ITSELF):
        return None
    passes = reason in PASSES_BY_ITSELF
    if not passes and not (run.site_unavailable and reason in MAY_BE_THE_SITE):
        return Wait(None, "Waits for a person: it would halt again.")
    if run.left_writes:
        return Wait(None, "Waits for a person: another run would store again what this one left on the site.")
    if halts_before >= patience.halts:
        return Wait(None, f"Waits for a person: the task has used its {patience.halts} runs after a halt.")
    seconds = min(patience.first_s * 2 ** min(halts_before, _DOUBLES), patience.longest_s)
    if run.retry_after_s is not None and run.retry_after_s > seconds:
        return Wait(run.retry_after_s, "Waits as long as the site asked for (Retry-After).")
    return Wait(seconds, "Waits, then runs again: nothing was stored, and the reason may pass by itself.")

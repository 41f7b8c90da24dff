"""How one run ended, as it is recorded: everything a receipt needs that is not in the operation itself. No I/O.

The runner writes an `Ending` into the ledger as the data of a `run_ended` event; receipts are built from the record
alone, today or in a year. Nothing of the payload is in it (A11).
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from executor.model.admission import Refusal
from executor.model.reasons import Halt, NotSent, Reason, Unsure
from executor.model.transitions import Transmission
from executor.model.verdict import Discrepancy, VerdictReason


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LeftWrite(_Record):
    """A write that left the machine, the effect request included."""

    sequence: int
    at: datetime
    phase: str
    name: str
    kind: Literal["effect", "supporting", "trailing", "login"]
    method: str
    url: str
    status: int | None
    after_gesture: bool
    item: str | None = None


class WebSocketHeld(_Record):
    """A WebSocket that was open while the composer was filled in. The gate reads its messages and cannot know what they
    cause: a blind spot, closed before anything was armed."""

    sequence: int
    at: datetime
    name: str
    url: str
    messages_out: int
    messages_in: int
    ended: str


class EffectRequest(_Record):
    """The effect request, by what can be compared later and tells nobody the payload."""

    method: str
    url: str
    body_sha256: str
    body_length: int
    material_sha256: str
    released_at: datetime | None
    from_page_only: tuple[str, ...] = ()
    """Material fields that the wire could not show (C3)."""


class AnswerRead(_Record):
    status: int
    complete: bool
    says: str
    clause: str
    item: str | None
    url: str | None


class Looked(_Record):
    """One view, before the claim or after the submit, in a form that can be kept."""

    view: str
    when: Literal["before", "after"]
    at: datetime
    result: Literal["found", "not_found", "could_not_look", "partial"]
    scope: str
    complete: bool
    items: tuple[dict[str, str | None], ...] = ()
    detail: str = ""
    evidence: tuple[str, ...] = ()


class Picture(_Record):
    """A picture that a person should see first, by its place in the evidence store."""

    point: str
    label: str
    sha256: str
    path: str
    note: str = ""


class EvidenceKept(_Record):
    manifest: str
    """Path of the manifest, relative to the evidence folder."""
    manifest_sha256: str
    pictures: tuple[Picture, ...]
    items: int
    gaps: tuple[str, ...]


class Ending(_Record):
    """One run's end. `step` is the number of the step that it ended in (17 when it went through)."""

    run: str
    attempt: str | None
    started_at: datetime
    ended_at: datetime
    step: int
    reason: str | None
    detail: str = ""
    transmission: Transmission | None
    verdict_reason: VerdictReason | None = None
    verdict_why: str = ""
    item: str | None = None
    item_url: str | None = None
    discrepancy: Discrepancy | None = None
    effect: EffectRequest | None = None
    answer: AnswerRead | None = None
    baseline: tuple[str, ...] | None = None
    looks: tuple[Looked, ...] = ()
    left: tuple[LeftWrite, ...] = ()
    websockets: tuple[WebSocketHeld, ...] = ()
    refused_writes: tuple[str, ...] = ()
    """Writes that the gate refused: reason, method and address of each."""
    dialogs: tuple[str, ...] = ()
    evidence: EvidenceKept | None = None
    reads: int = 0
    """Requests without effect that left, documents and their parts."""

    def coded_reason(self) -> Reason | None:
        """The reason as its enum."""
        return parse_reason(self.reason)


def parse_reason(text: str | None) -> Reason | None:
    """`kind:value` back to its enum; the kinds are halt, not_sent, unsure, refusal. Raises ValueError."""
    if text is None:
        return None
    kind, _, value = text.partition(":")
    kinds: dict[str, type[Halt] | type[NotSent] | type[Unsure] | type[Refusal]] = {
        "halt": Halt,
        "not_sent": NotSent,
        "unsure": Unsure,
        "refusal": Refusal,
    }
    if kind not in kinds:
        raise ValueError(f"{text!r} names no kind of reason")
    return kinds[kind](value)


def code(reason: Reason) -> str:
    """A reason as text that names its kind too: `not_sent:material_differs`."""
    kinds = {Halt: "halt", NotSent: "not_sent", Unsure: "unsure", Refusal: "refusal"}
    return f"{kinds[type(reason)]}:{reason.value}"

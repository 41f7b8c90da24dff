"""The shape of a receipt: frozen models, one schema version, nothing of the payload (A11, E1).

`docs/receipt.schema.json` is generated from here. A field may be added under the same version; one that changes its
meaning or goes needs a new version. Times are aware; ids and digests are text; lengths in bytes.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from executor.model.failure import FailureClass
from executor.model.operation import Disposition, Policy
from executor.model.retry import Permits, RetryReason
from executor.model.transitions import Dispatch, Outcome, Permission, Transmission
from executor.model.verdict import Discrepancy, VerdictReason
from executor.receipts.guidance import ActionPermitted, ActionProhibited, Detector, Standing
from flows.effect import Category, Undo

SCHEMA_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ids(_Part):
    operation: str
    task: str
    attempt: str | None
    """The latest attempt; None when none was ever reserved."""
    attempts: int
    run: str | None


class Times(_Part):
    """When what happened. None: it did not, by the record."""

    proposed: AwareDatetime
    run_started: AwareDatetime | None
    dispatch_started: AwareDatetime | None
    gesture: AwareDatetime | None
    released: AwareDatetime | None
    answered: AwareDatetime | None
    closed: AwareDatetime | None
    run_ended: AwareDatetime | None


class Stage(_Part):
    """The step in which the last run ended (1 to 17)."""

    number: int
    name: str
    does: str


class Dimensions(_Part):
    """The three dimensions, apart, with what is known to have crossed the wire (A1)."""

    permission: Permission
    dispatch: Dispatch
    transmission: Transmission | None
    outcome: Outcome
    disposition: Disposition


class Failure(_Part):
    failure_class: FailureClass
    response: str


class Why(_Part):
    """Why it stands as it does. `code` is a reason with its kind in front: halt, not_sent, unsure, refusal, verdict."""

    code: str
    sentence: str
    detail: str
    """As the run recorded it, without payload."""
    detector: Detector
    because: tuple[str, ...]
    """Operations or stops that stand in the way."""


class Approved(_Part):
    reference: str
    by: str
    at: AwareDatetime
    expires: AwareDatetime
    revoked_at: AwareDatetime | None
    attempts: int
    used: int
    flow_version: str
    code_digest: str


class Authorized(_Part):
    """What was to happen, and by whose permission. The payload is its fingerprint here."""

    action: str
    account: str
    destination: str
    fingerprint: str
    flow: str
    flow_version: str
    proposed_by: str
    deadline: AwareDatetime | None
    approval: Approved | None
    """The latest approval; None when nobody has approved."""


class EffectRequestSeen(_Part):
    method: str
    url: str
    """Without its query, which may carry content or a token."""
    query_names: tuple[str, ...]
    body_sha256: str
    body_length: int
    material_sha256: str
    released_at: AwareDatetime | None


class WriteThatLeft(_Part):
    """A write that left the machine. Everything but the effect is collateral: a draft, an upload, a lock."""

    at: AwareDatetime
    name: str
    kind: Literal["effect", "supporting", "trailing", "login"]
    method: str
    url: str
    status: int | None
    after_gesture: bool
    item: str | None


class WebSocketOpen(_Part):
    """A WebSocket that was open while the composer was filled in. What the page's messages caused at the site cannot be
    read from them: the gate is blind there, and closed it before anything was armed."""

    at: AwareDatetime
    name: str
    url: str
    messages_out: int
    messages_in: int
    ended: str


class AttemptMade(_Part):
    """One attempt, by the record. `reason` says how it was closed."""

    number: int
    id: str
    approval: str
    transmission: Transmission
    dispatch_started: AwareDatetime
    gesture: AwareDatetime | None
    released: AwareDatetime | None
    answered: AwareDatetime | None
    closed: AwareDatetime | None
    reason: str | None


class Attempted(_Part):
    gesture_recorded: bool
    """The gesture was recorded as the next thing; after a crash that does not say that it was made."""
    released: bool
    other_write_exposed: bool
    dispatches: int
    """How often the effect request was released, over all attempts."""
    attempts: tuple[AttemptMade, ...] = ()
    """All of them, the oldest first. What else is told here is of the latest."""
    effect_request: EffectRequestSeen | None
    left: tuple[WriteThatLeft, ...]
    websockets: tuple[WebSocketOpen, ...]
    refused_writes: tuple[str, ...]
    dialogs: int
    reads: int


class Answer(_Part):
    status: int
    complete: bool
    says: str
    clause: str
    item: str | None
    url: str | None


class ItemSeen(_Part):
    id: str | None
    state: str | None
    strength: str | None
    account: str | None
    url: str | None


class Look(_Part):
    view: str
    when: Literal["before", "after"]
    at: AwareDatetime
    result: Literal["found", "not_found", "could_not_look", "partial"]
    scope: str
    complete: bool
    items: tuple[ItemSeen, ...]
    detail: str


class Observed(_Part):
    answer: Answer | None
    looks: tuple[Look, ...]
    verdict_reason: VerdictReason | None
    verdict_why: str
    effect: str | None
    """The business effect, where the record names one for this outcome (A7)."""
    established_by: tuple[str, ...]
    item: str | None
    item_url: str | None
    discrepancy: Discrepancy | None


class Permitted(_Part):
    action: ActionPermitted
    sentence: str
    command: str | None


class Prohibited(_Part):
    action: ActionProhibited
    sentence: str


class Ownership(_Part):
    """Who must settle it, until when. Both None when there is nothing to settle; `reason` says why either way."""

    owner: str | None
    queue: str | None = None
    """Where the owner looks for it; None when none is named."""
    respond_by: AwareDatetime | None
    reason: str


class ProviderKey(_Part):
    key: str
    scope: str | None
    lifetime_s: float | None
    attempts: int | None


class Handle(_Part):
    """What to look with: the provider's key, or else what can be compared with the provider's own record."""

    reference: str
    """Our own: the operation's id."""
    provider_key: ProviderKey | None
    account: str
    destination: str
    effect_request: EffectRequestSeen | None
    baseline: tuple[str, ...] | None
    """Ids that were there before the submit was reserved; None when they could not be read."""
    item: str | None
    item_url: str | None


class Retry(_Part):
    policy: Policy
    permits: Permits
    reason: RetryReason
    sentence: str
    until: AwareDatetime | None = None
    """When the provider's key stops making another attempt safe; None without one, or while it was never sent."""


class UndoInstructions(_Part):
    category: Category
    undo: Undo
    instructions: str


class PictureKept(_Part):
    point: str
    label: str
    sha256: str
    path: str
    note: str


class Evidence(_Part):
    """Paths are relative to the home folder (`interlock --home`). `gaps` name what could not be kept."""

    manifest: str
    manifest_sha256: str
    items: int
    pictures: tuple[PictureKept, ...]
    gaps: tuple[str, ...]


class Position(_Part):
    """The place in the operation's history that this receipt speaks of: the hash of its last event, and how many."""

    chain_head: str
    version: int


class Happening(_Part):
    sequence: int
    at: AwareDatetime
    actor: str
    kind: str
    why: str


class Receipt(_Part):
    """What was authorized, attempted and observed, what stays unknown, what may be done and what not (E1).

    Built from the record alone, and not checked against the site. Its signature is in a file beside it.
    """

    schema_version: Literal[1] = 1
    made_at: AwareDatetime
    standing: Standing
    verdict: str
    ids: Ids
    times: Times
    stage: Stage | None
    dimensions: Dimensions
    failure: Failure | None
    reason: Why | None
    authorized: Authorized
    attempted: Attempted
    observed: Observed
    unknown: tuple[str, ...]
    permitted: tuple[Permitted, ...]
    prohibited: tuple[Prohibited, ...]
    next_step: str
    ownership: Ownership
    handle: Handle
    retry: Retry
    undo: UndoInstructions | None
    automatic_writes_disabled: Literal[True] = True
    evidence: Evidence | None
    read_from_page_only: tuple[str, ...]
    """Material that the wire could not show, so that only the page vouches for it (C3)."""
    record: Position
    timeline: tuple[Happening, ...]


def schema_json() -> str:
    """The JSON Schema of a receipt, as docs/receipt.schema.json holds it."""
    schema: dict[str, Any] = Receipt.model_json_schema(mode="serialization")
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

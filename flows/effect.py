"""How a flow author says which request is the effect, which writes go with it, and what the answers mean.

Declarations only: frozen values with pure functions inside. The gate reads them to decide, the executor to judge;
nothing here sends, opens or waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from flows.wire import Answer, OutgoingRequest

Material = Mapping[str, object]
"""The fields that were approved, in the flow's normal form: JSON values by name."""


def one(_request: OutgoingRequest) -> int:
    """The count of a body that can hold one effect only (an HTML form, a single resource)."""
    return 1


@dataclass(frozen=True, kw_only=True)
class Write:
    """A write that the site needs around the effect: an autosave, an upload, a lock, a heartbeat.

    `matches` must be a positive predicate over method, URL and body ("status is absent or draft"), never the absence
    of something ("not publish"). `path` is a regular expression over the whole path. `origin` is None for the
    destination's own origin. `may_cause_effect` says whether this write, left after the gesture, could by itself
    bring the effect about; only an author who knows the site can say no, and then a run in which only such writes
    left is still proven not sent (C5). `material` reads content that the write carries ahead of the effect, `item`
    the item it belongs to; both get the answer too, since a new draft learns its id from it.
    """

    name: str
    method: str
    path: str
    matches: Callable[[OutgoingRequest], bool]
    may_cause_effect: bool
    origin: str | None = None
    material: Callable[[OutgoingRequest, Answer], Material] | None = None
    item: Callable[[OutgoingRequest, Answer], str | None] | None = None

    def fits(self, request: OutgoingRequest, destination_origin: str) -> bool:
        """Whether the request is this write. Raises what the author's predicate raises; the gate then refuses."""
        return _fits(self, request, destination_origin)


@dataclass(frozen=True, kw_only=True)
class Read:
    """A POST that only reads, as a view may need it: a GraphQL query, a search with its terms in the body.

    `matches` must be a positive predicate ("the document holds nothing but queries"). `path` is a regular expression
    over the whole path; the origin is the destination's. The gate lets it pass while looking, counts it as a read,
    and refuses it all the same when it may be the effect or asks for another method (C7).
    """

    name: str
    path: str
    matches: Callable[[OutgoingRequest], bool]
    method: str = "POST"

    def could_be(self, request: OutgoingRequest, destination_origin: str) -> bool:
        """Whether everything but the body fits."""
        return (
            request.method == self.method
            and request.origin == destination_origin
            and re.fullmatch(self.path, request.path) is not None
        )

    def fits(self, request: OutgoingRequest, destination_origin: str) -> bool:
        """Raises what the author's predicate raises; the gate then refuses."""
        return self.could_be(request, destination_origin) and self.matches(request)


def nothing(_message: str | bytes) -> bool:
    """For a WebSocket over which the page only listens."""
    return False


@dataclass(frozen=True, kw_only=True)
class WebSocket:
    """A WebSocket that the page needs while its composer is filled in: who else is here, a lock, notices.

    It may be open while `prepare` runs, and never after: the executor closes it before anything is read from the page,
    so nothing leaves over it from then on. `path` is a regular expression over the whole path; `origin` is None for the
    destination's own, written with http or https. `sends` must be a positive predicate over one message of the page
    (text as `str`, binary as `bytes`); a message that it does not allow closes the connection. `protocols` are the
    subprotocols that the page may offer. What a message causes at the site nobody can read from it, so each connection
    is named in the receipt.
    """

    name: str
    path: str
    sends: Callable[[str | bytes], bool] = nothing
    origin: str | None = None
    protocols: tuple[str, ...] = ()

    def fits(self, request: OutgoingRequest, destination_origin: str) -> bool:
        """Whether a handshake is for this WebSocket."""
        return (
            request.method == "GET"
            and request.origin == (self.origin or destination_origin)
            and re.fullmatch(self.path, request.path) is not None
        )


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The one outgoing request that causes the effect.

    `name` is the business effect in words ("post published"). `count` says how many effects the body holds: anything
    but 1 is refused (a batch endpoint, a GraphQL document with two mutations). `material` reads the approved fields
    that this request shows; `item` the existing item that it names, if it does, by which earlier supporting writes
    are tied to it. The method may be GET: some sites publish by a link.
    """

    name: str
    method: str
    path: str
    matches: Callable[[OutgoingRequest], bool]
    material: Callable[[OutgoingRequest], Material]
    count: Callable[[OutgoingRequest], int] = one
    item: Callable[[OutgoingRequest], str | None] = lambda _request: None
    origin: str | None = None

    def fits(self, request: OutgoingRequest, destination_origin: str) -> bool:
        return _fits(self, request, destination_origin)


def _fits(rule: Write | Effect, request: OutgoingRequest, destination_origin: str) -> bool:
    return (
        request.method == rule.method
        and request.origin == (rule.origin or destination_origin)
        and re.fullmatch(rule.path, request.path) is not None
        and rule.matches(request)
    )


class Says(StrEnum):
    """What an answer to the effect request means under the contract. Nothing else is ever read from a status."""

    DONE = "done"
    """The documented terminal state, with the provider's own id of the item."""
    ACCEPTED = "accepted"
    """Taken in, not finished: queued, scheduled, in moderation."""
    NOT_APPLIED = "not_applied"
    """The site states, by a clause that the contract names, that the effect did not take place."""
    NOTHING = "nothing"
    """The answer establishes nothing either way. The default, and the right reading of most errors."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """One reading of one answer. `clause` names the contract's rule that was applied, for the record."""

    says: Says
    clause: str
    item: str | None = None
    url: str | None = None


class Category(StrEnum):
    READ = "read"
    WRITE_WITH_KEY = "write_with_key"
    WRITE_WITHOUT_KEY = "write_without_key"
    IRREVERSIBLE_EXTERNAL = "irreversible_external"


class Undo(StrEnum):
    HARMLESS_TO_REPEAT = "harmless_to_repeat"
    REVERSIBLE_AT_A_COST = "reversible_at_a_cost"
    FURTHER_VISIBLE_ACT = "further_visible_act"
    IRREVERSIBLE = "irreversible"


class Policy(StrEnum):
    """How often the effect request of an operation may be released (B3)."""

    ABSOLUTE = "absolute"
    """At most one release, ever, even under a fresh approval. The default for browser flows."""
    REAUTHORIZE = "reauthorize"
    """A person may authorize a further attempt, as a linked decision that names the duplicate exposure."""
    IDEMPOTENT = "idempotent"
    """The contract makes repetition safe: same key, same fields, inside the key's lifetime and count."""


@dataclass(frozen=True, kw_only=True)
class ClientKey:
    """An idempotency key that the provider honours, and the terms under which it does.

    The effect request carries it in the `header` of that name, or in the form field or JSON member `field`: exactly one
    of the two. `attempts` is how often it may be sent in all, `same_fields` the material fields that must stay
    identical. `lifetime_s` is how long the provider remembers it, in seconds; nothing is sent under it in the last
    `margin_s` of them, because a request that leaves in time may still arrive late.
    """

    header: str | None
    field: str | None
    scope: str
    lifetime_s: float
    attempts: int
    same_fields: tuple[str, ...]
    margin_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class AbsenceGuarantee:
    """What makes "not there" mean something (D6): the view that lists completely, and how long after the release, in
    seconds, the listing may lag. `statement` is the sentence that a person reads in the receipt."""

    view: str
    consistency_window_s: float
    statement: str


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What the provider promises, in code (B4). Times in seconds; they are starting points, settings override them."""

    read_answer: Callable[[OutgoingRequest, Answer], Meaning]
    category: Category
    undo: Undo
    undo_instructions: str
    absence: AbsenceGuarantee | None = None
    key: ClientKey | None = None
    policy: Policy = Policy.ABSOLUTE
    """What an operation of this flow is proposed under. `idempotent` needs a key."""
    look_before: bool = True
    look_after: bool = True
    effect_window_s: float = 10.0
    answer_deadline_s: float = 60.0
    trailing_s: float = 2.0
    notes: tuple[str, ...] = field(default=())

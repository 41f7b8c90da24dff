"""What the gate decides about one request, as pure functions: which phase lets what through, and why not.

No I/O, no clock, no state: the proxy passes in everything that counts. Nothing here may let a request pass because it
could not be understood; whatever is not positively known is refused (C1, C2, C7).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from functools import lru_cache
from urllib.parse import unquote, unquote_plus

from executor.gate.spellings import same_place, spellings
from flows import graphql
from flows.effect import Effect, Read, WebSocket, Write
from flows.wire import OutgoingRequest, UnreadableBody

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing by themselves (RFC 9110 section 9.2.1), in exactly this spelling. TRACE is left out."""

OVERRIDE_NAMES = ("x-http-method-override", "x-http-method", "x-method-override", "_method")
"""Headers and query names by which common frameworks take another method than the one on the request line."""

SUBRESOURCES = frozenset(
    {"script", "style", "image", "font", "audio", "video", "track", "manifest", "xslt", "audioworklet", "paintworklet"}
)
"""Values of Sec-Fetch-Dest whose answer cannot become a page. A list of what is known: new values are restricted."""

FETCHES = frozenset({"empty", "worker", "sharedworker", "serviceworker", "json", "text"})
"""Values of Sec-Fetch-Dest that belong to scripts: they need the view's list, but may be on its list of fetches."""


class Phase(StrEnum):
    """What a context may do now. Every phase but the last lets safe requests through."""

    PREPARE = "prepare"
    READ_ONLY = "read_only"
    ARMED = "armed"
    SHUT = "shut"
    LOGIN = "login"
    WATCH = "watch"
    """Everything passes and is recorded; only for sites that are marked as test sites."""
    REHEARSE = "rehearse"
    CLOSED = "closed"


class Kind(StrEnum):
    SAFE = "safe"
    READ = "read"
    """In the shape of a write, and declared by the view as a read."""
    SUPPORTING = "supporting"
    TRAILING = "trailing"
    LOGIN = "login"
    WATCHED = "watched"
    """A write that passed undecided in phase *watch*."""
    EFFECT = "effect"
    WEBSOCKET = "websocket"
    """The handshake of a declared WebSocket, and all that passes over it."""
    PROBE = "probe"
    """The path proof's one-time address: answered by the gate."""
    REFUSED = "refused"


class Reason(StrEnum):
    """Why a request did not pass. Where several hold, the first in this order is given."""

    PHASE_CLOSED = "phase_closed"
    METHOD_OVERRIDE = "method_override"
    """A safe method that asks to be taken for another one (a GraphQL mutation in the address included), a declared read
    that does, or several overrides that disagree."""
    PREFETCH = "prefetch"
    WEBSOCKET = "websocket"
    MALFORMED_TARGET = "malformed_target"
    HOST_MISMATCH = "host_mismatch"
    SMUGGLING = "smuggling"
    """Framing that two parsers could read differently (RFC 9112 sections 5.2, 6.1, 6.3 and 11.2)."""
    PROBE_UNKNOWN = "probe_unknown"
    """An address of the path proof that was not handed out, or was already answered."""
    WRITE_IN_READ_ONLY = "write_in_read_only"
    EFFECT_CLOSED = "effect_closed"
    """It matches the effect, and this phase does not let the effect out."""
    BODY_UNREADABLE = "body_unreadable"
    """Method and path are the effect's and its predicate could not read the body; or the body is over the limit."""
    PREDICATE_FAILED = "predicate_failed"
    NOT_DECLARED = "not_declared"
    AMBIGUOUS = "ambiguous"
    """It matches the effect and another write, or two writes, or the effect under another spelling."""
    EFFECT_COUNT = "effect_count"
    WRITE_AFTER_SHUT = "write_after_shut"
    UNLISTED_DOCUMENT = "unlisted_document"
    UNLISTED_FETCH = "unlisted_fetch"
    READ_BUDGET_SPENT = "read_budget_spent"
    # What the door and the carrying say.
    BUDGET_SPENT = "budget_spent"
    CONTENT_CLOSED = "content_closed"
    """A save that carries content, once a candidate for the effect has come: what was compared would change."""
    MATERIAL_DIFFERS = "material_differs"
    SESSION_DIFFERS = "session_differs"
    KEY_DIFFERS = "key_differs"
    LEDGER_REFUSED = "ledger_refused"
    DOOR_FAILED = "door_failed"
    HOST_UNREACHABLE = "host_unreachable"
    TLS_FAILED = "tls_failed"
    UPSTREAM_FAILED = "upstream_failed"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is declared for one context.

    `opens` and `fetches` are regular expressions over path and query of the destination's own origin (full match);
    they count in phase *read_only*, and so do `reads`; `websockets` count in phase *prepare*. `override_names` are
    added to `OVERRIDE_NAMES`. `read_budget` is the number of documents, fetches and declared reads that a view may
    make, subresources not counted; None means no budget.
    """

    destination_origin: str
    effect: Effect | None = None
    supporting: tuple[Write, ...] = ()
    trailing: tuple[Write, ...] = ()
    login: tuple[Write, ...] = ()
    websockets: tuple[WebSocket, ...] = ()
    opens: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    override_names: tuple[str, ...] = ()
    read_budget: int | None = None


@dataclass(frozen=True)
class Decision:
    """`reason` is set exactly when `kind` is REFUSED; `write`, `read` or `websocket` is the declaration that matched,
    if one did."""

    kind: Kind
    reason: Reason | None = None
    write: Write | None = None
    read: Read | None = None
    websocket: WebSocket | None = None

    @property
    def passes(self) -> bool:
        return self.kind is not Kind.REFUSED

    @property
    def declared(self) -> str | None:
        """The name of the declaration that matched."""
        declaration = self.write or self.read or self.websocket
        return declaration.name if declaration else None


def decide(
    phase: Phase,
    rules: Rules,
    request: OutgoingRequest,
    *,
    reads_so_far: int = 0,
    trailing_open: bool = False,
) -> Decision:
    """The decision on one request, with its whole body. Never raises for what the request or a flow's predicate does.

    `reads_so_far` counts the documents and fetches that passed in this phase; `trailing_open` says whether trailing
    writes may still leave.
    """
    if phase is Phase.CLOSED:
        return _refused(Reason.PHASE_CLOSED)
    if reason := refused_in_every_phase(phase, rules, request):
        return _refused(reason)
    try:
        if _asks_for_upgrade(request):
            return _decide_websocket(rules, request)
        # Beyond phase *watch* a safe method with an override was refused above.
        if _reads_by_itself(request) and (phase is not Phase.WATCH or is_safe(request, rules.override_names)):
            return _decide_read(phase, rules, request, reads_so_far)
        if phase is Phase.READ_ONLY:
            return _decide_declared_read(rules, request, reads_so_far)
        return _decide_write(phase, rules, request, trailing_open)
    except UnreadableBody:
        return _refused(Reason.BODY_UNREADABLE)
    except Exception:  # noqa: BLE001  a flow author's predicate may raise anything, and anything must refuse
        return _refused(Reason.PREDICATE_FAILED)


def is_safe(request: OutgoingRequest, override_names: Iterable[str] = ()) -> bool:
    """Whether the request is a read: a safe method, no body, no method override. Everything else is a write."""
    return _reads_by_itself(request) and not overrides_method(request, override_names)


def _reads_by_itself(request: OutgoingRequest) -> bool:
    return (
        request.method in SAFE_METHODS
        and request.body_known
        and not request.body
        and not request.header("transfer-encoding")
        and request.header("content-length", "0") == "0"
    )


def overrides_method(request: OutgoingRequest, names: Iterable[str] = ()) -> bool:
    """Whether a header or a query name asks the server to take another method (`OVERRIDE_NAMES` and `names`)."""
    return bool(_overrides(request, names))


def could_be_effect(rules: Rules, request: OutgoingRequest) -> bool:
    """Whether a request may turn out to be the effect once its body is there: method, origin and path fit."""
    effect = rules.effect
    return (
        effect is not None
        and request.method == effect.method
        and request.origin == (effect.origin or rules.destination_origin)
        and re.fullmatch(effect.path, request.path) is not None
    )


def destination(request: OutgoingRequest) -> str:
    """What the browser wants the answer for: Sec-Fetch-Dest, and "document" where it is absent or repeated. Browsers
    leave it out on plain http beyond loopback, where nothing tells a page from a picture."""
    values = request.header_values("sec-fetch-dest")
    return values[0].strip().lower() if len(values) == 1 else "document"


def counts_as_read(request: OutgoingRequest) -> bool:
    """Whether a safe request uses the budget of reads."""
    return destination(request) not in SUBRESOURCES


def session_digest_of(request: OutgoingRequest, patterns: Iterable[str]) -> str | None:
    """SHA-256 (hex) over the cookies whose names match `patterns` (`*` stands for anything), in sorted order: names
    and values, repeats kept. None when no cookie matches, which is never equal to a session."""
    expressions = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    chosen = sorted(
        pair for pair in request.cookies if any(re.fullmatch(one, pair[0], re.DOTALL) for one in expressions)
    )
    if not chosen:
        return None
    return hashlib.sha256(json.dumps(chosen).encode("ascii")).hexdigest()


def _refused(reason: Reason) -> Decision:
    return Decision(Kind.REFUSED, reason)


def refused_in_every_phase(phase: Phase, rules: Rules, request: OutgoingRequest) -> Reason | None:
    """What no declaration can allow: disguised methods, speculative loads, upgrades but to a WebSocket that is declared
    for this phase, targets read in two ways."""
    overrides = _overrides(request, rules.override_names)
    # A server that honours one override and a proxy that honours another would see two different requests.
    if overrides and phase is not Phase.WATCH and (request.method in SAFE_METHODS or len(overrides) > 1):
        return Reason.METHOD_OVERRIDE
    purposes = ", ".join(request.header(name) for name in ("sec-purpose", "purpose", "x-purpose", "x-moz")).lower()
    if "prefetch" in purposes or "prerender" in purposes or "preview" in purposes:
        return Reason.PREFETCH
    if _asks_for_upgrade(request) and (phase is not Phase.PREPARE or not _websockets(rules, request)):
        return Reason.WEBSOCKET
    if not _well_formed(request.target):
        return Reason.MALFORMED_TARGET
    return None


def _asks_for_upgrade(request: OutgoingRequest) -> bool:
    return bool(request.header("upgrade")) or "upgrade" in request.header("connection").lower()


def _websockets(rules: Rules, request: OutgoingRequest) -> list[WebSocket]:
    return [one for one in rules.websockets if one.fits(request, rules.destination_origin)]


def _decide_websocket(rules: Rules, request: OutgoingRequest) -> Decision:
    """Only what `refused_in_every_phase` lets by comes here: phase *prepare*, and a declaration fits."""
    if not is_safe(request, rules.override_names):
        return _refused(Reason.WEBSOCKET)
    if _match_effect(rules, request) is not _Match.NONE:
        return _refused(Reason.EFFECT_CLOSED)
    fitting = _websockets(rules, request)
    if len(fitting) != 1:
        return _refused(Reason.AMBIGUOUS)
    return Decision(Kind.WEBSOCKET, websocket=fitting[0])


def _well_formed(target: str) -> bool:
    """Origin form (RFC 9112 section 3.2.1) that every server reads alike. Browsers resolve dot segments themselves,
    so one that is still there was put there to be read differently."""
    if not re.fullmatch(r"/[\x21-\x7e]*", target) or "#" in target:
        return False
    decoded = unquote(target.partition("?")[0])
    segments = decoded.split("/")
    return "\\" not in decoded and ".." not in segments and "." not in segments and decoded.isprintable()


def _overrides(request: OutgoingRequest, names: Iterable[str]) -> set[str]:
    """The methods asked for, in upper case. Names are compared as lenient servers read them: CGI takes `_` for `-` in
    a header, PHP takes `.`, a space and `[` for `_` in a query, and some servers split a query at `;` too."""
    wanted = _wanted(tuple(names))
    found = {value.strip().upper() for name, value in request.headers if _folded(name) in wanted}
    query = request.target.partition("?")[2]
    if query:
        for part in re.split("[&;]", query):
            name, _, value = part.partition("=")
            if _folded(unquote_plus(name).strip().partition("[")[0]) in wanted:
                found.add(unquote_plus(value).strip().upper())
    return found


@lru_cache(maxsize=64)
def _wanted(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_folded(name) for name in (*OVERRIDE_NAMES, *names))


@lru_cache(maxsize=4096)  # a browser sends the same few names all the time
def _folded(name: str) -> str:
    return re.sub(r"[.\s-]", "_", name.lower())


def _decide_read(phase: Phase, rules: Rules, request: OutgoingRequest, reads_so_far: int) -> Decision:
    if phase is Phase.WATCH:
        return Decision(Kind.SAFE)
    match = _match_effect(rules, request)
    if match is not _Match.NONE:
        return _decide_effect(phase, rules, request, match, others=_fitting(rules.supporting, rules, request))
    if graphql.may_mutate_by_address(request):
        return _refused(Reason.METHOD_OVERRIDE)
    if phase is not Phase.READ_ONLY:
        return Decision(Kind.SAFE)
    wanted = destination(request)
    if wanted in SUBRESOURCES:
        return Decision(Kind.SAFE)
    fetch = wanted in FETCHES
    lists = rules.opens + rules.fetches if fetch else rules.opens
    if request.origin != rules.destination_origin or not any(re.fullmatch(one, request.target) for one in lists):
        return _refused(Reason.UNLISTED_FETCH if fetch else Reason.UNLISTED_DOCUMENT)
    if rules.read_budget is not None and reads_so_far >= rules.read_budget:
        return _refused(Reason.READ_BUDGET_SPENT)
    return Decision(Kind.SAFE)


def _decide_declared_read(rules: Rules, request: OutgoingRequest, reads_so_far: int) -> Decision:
    """A write in a view (C7): refused, unless it is a POST that the view declares as a read, seen whole, under no other
    method and under no spelling the effect."""
    if not rules.reads or not any(one.could_be(request, rules.destination_origin) for one in rules.reads):
        return _refused(Reason.WRITE_IN_READ_ONLY)
    if not request.body_known:
        return _refused(Reason.BODY_UNREADABLE)
    if _methods(rules, request) != {request.method}:
        return _refused(Reason.METHOD_OVERRIDE)
    if _match_effect(rules, request) is not _Match.NONE:
        return _refused(Reason.EFFECT_CLOSED)
    fitting = [one for one in rules.reads if one.fits(request, rules.destination_origin)]
    if len(fitting) != 1:
        return _refused(Reason.AMBIGUOUS if fitting else Reason.WRITE_IN_READ_ONLY)
    if rules.read_budget is not None and reads_so_far >= rules.read_budget:
        return _refused(Reason.READ_BUDGET_SPENT)
    return Decision(Kind.READ, read=fitting[0])


def _decide_write(phase: Phase, rules: Rules, request: OutgoingRequest, trailing_open: bool) -> Decision:
    if phase is Phase.WATCH:
        return Decision(Kind.WATCHED)
    declared, kind = {
        Phase.LOGIN: (rules.login, Kind.LOGIN),
        Phase.SHUT: (rules.trailing if trailing_open else (), Kind.TRAILING),
    }.get(phase, (rules.supporting, Kind.SUPPORTING))
    match = _match_effect(rules, request)
    if match is not _Match.NONE and phase is not Phase.ARMED:
        return _decide_effect(phase, rules, request, match, others=[])
    fitting = _fitting(declared, rules, request)
    if match is not _Match.NONE:
        return _decide_effect(phase, rules, request, match, others=fitting)
    if len(fitting) > 1:
        return _refused(Reason.AMBIGUOUS)
    if fitting:
        return Decision(kind, write=fitting[0])
    return _refused(Reason.WRITE_AFTER_SHUT if phase is Phase.SHUT else Reason.NOT_DECLARED)


def _decide_effect(
    phase: Phase, rules: Rules, request: OutgoingRequest, match: _Match, *, others: list[Write]
) -> Decision:
    if phase is not Phase.ARMED:
        return _refused(Reason.EFFECT_CLOSED)
    if match is _Match.ALIAS or others:
        return _refused(Reason.AMBIGUOUS)
    assert rules.effect is not None
    if not request.fully_read:
        return _refused(Reason.BODY_UNREADABLE)  # nothing can be compared with it, whatever the predicate looked at
    if rules.effect.count(request) != 1:
        return _refused(Reason.EFFECT_COUNT)
    return Decision(Kind.EFFECT)


def _fitting(writes: tuple[Write, ...], rules: Rules, request: OutgoingRequest) -> list[Write]:
    """The declared writes that the request is. A body that a predicate cannot read does not match it."""
    found = []
    for write in writes:
        try:
            if write.fits(request, rules.destination_origin):
                found.append(write)
        except UnreadableBody:
            continue
    return found


class _Match(Enum):
    NONE = auto()
    EXACT = auto()
    ALIAS = auto()
    """The effect as a server might read it: another spelling of host or path, HEAD for GET, an overridden method."""


def _match_effect(rules: Rules, request: OutgoingRequest) -> _Match:
    """Raises `UnreadableBody` when only the body could tell: a write to the effect's own address that nobody can read
    must not pass under another name."""
    effect = rules.effect
    if effect is None:
        return _Match.NONE
    if effect.fits(request, rules.destination_origin):
        return _Match.EXACT
    own = effect.origin or rules.destination_origin
    if not same_place(request, own):
        return _Match.NONE
    targets = [one for one in spellings(request.target) if re.fullmatch(effect.path, one.partition("?")[0], re.I)]
    if not targets or effect.method not in _methods(rules, request):
        return _Match.NONE
    if any(effect.matches(replace(request, method=effect.method, target=target)) for target in targets):
        return _Match.ALIAS
    return _Match.NONE


def _methods(rules: Rules, request: OutgoingRequest) -> set[str]:
    """The methods that servers may take the request for. Raises `UnreadableBody` when its body could name another."""
    methods = {request.method, *_overrides(request, rules.override_names)}
    if request.method == "HEAD":
        methods.add("GET")
    if request.method == "POST":
        # The usual place of Rails, Laravel, Symfony and Express. Allowed, since their forms need it; never unseen.
        wanted = _wanted(rules.override_names)
        pairs: Iterable[tuple[str, object]] = ()
        if request.content_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
            pairs = request.form.fields
        elif request.content_type.endswith("json") and isinstance(value := request.json, dict):
            pairs = value.items()
        methods |= {
            str(value).strip().upper() for name, value in pairs if _folded(name.strip().partition("[")[0]) in wanted
        }
    return methods

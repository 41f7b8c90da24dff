"""The vocabulary of a flow author: a `Flow` says what one site needs for one action.

A flow declares and reads; it never submits. `prepare` fills the composer and names the control, the executor makes
the one gesture, views look afterwards (C1). A flow may not import the executor, keep state between runs, or reach
the network except through the page it is given.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast
from urllib.parse import urlsplit

from playwright.async_api import Locator
from pydantic import BaseModel, ConfigDict

from flows.effect import ClientKey, Contract, Effect, Material, Read, WebSocket, Write
from flows.observations import Observation
from flows.pages import ComposerPage, ReadOnlyPage
from flows.wire import origin_of, origin_of_url


class Payload(BaseModel):
    """Base of every payload model: unknown fields are an error, values do not change after parsing."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False)


P = TypeVar("P", bound=Payload)


@dataclass(frozen=True, kw_only=True)
class Intent(Generic[P]):
    """What is to happen, as the flow sees it. `destination` is in the flow's canonical form; `reference` is the
    operation's id, safe to show to the site where a flow wants a correlation."""

    task: str
    action: str
    destination: str
    account: str
    payload: P
    reference: str
    key: str | None = None
    """The idempotency key of this intent, the same for every attempt; None where the contract has no `key`. `prepare`
    puts it where the page takes it from; the gate compares what leaves with it and changes nothing."""

    @property
    def origin(self) -> str:
        """The origin of the destination, to which paths in a flow are relative."""
        return origin_of_url(self.destination)


@dataclass(frozen=True, kw_only=True)
class Submit:
    """The one control of the gesture. `key` is None for a click at the control's middle, else the single key to press
    while the control has the focus ("Enter"). The page that the control is in is the composer: it is what `identify`,
    `composed` and `validation_message` are given, and what the evidence shows."""

    control: Locator
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who is logged in and where the composer publishes, as the page shows it. None means that it could not be read,
    which stops the run (C4)."""

    account: str | None
    destination: str | None
    problem: str = ""
    """A login page, captcha or second factor in words, when the page shows one."""


@dataclass(frozen=True, kw_only=True)
class DialogRule:
    """How to answer a JavaScript dialog in whose message the regular expression `message` is found; every other dialog
    is dismissed and recorded. `kind` narrows the rule to one kind of dialog; for `beforeunload`, which comes without a
    message, it has to be given. `text` is what a prompt is answered with."""

    message: str
    accept: bool
    text: str | None = None
    kind: Literal["alert", "beforeunload", "confirm", "prompt"] | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """A read-only look. `opens` are regular expressions over path and query of the documents it may open, `fetches`
    of the background requests that those documents may make, `reads` the POSTs among these that only read. `lists`
    marks the view whose ids are the baseline."""

    name: str
    opens: tuple[str, ...]
    fetches: tuple[str, ...]
    reads: tuple[Read, ...]
    lists: bool
    look: Callable[[Any, ReadOnlyPage, Intent[Any]], Awaitable[Observation]]


_Look = TypeVar("_Look", bound=Callable[..., Awaitable[Observation]])


def view(
    name: str, *, opens: Sequence[str], fetches: Sequence[str] = (), reads: Sequence[Read] = (), lists: bool = False
) -> Callable[[_Look], _Look]:
    """Mark a method as a view. It takes a `ReadOnlyPage` and the intent, and returns an `Observation`."""

    def mark(look: _Look) -> _Look:
        for pattern in (*opens, *fetches):
            re.compile(pattern)
        declared = View(
            name=name, opens=tuple(opens), fetches=tuple(fetches), reads=tuple(reads), lists=lists, look=look
        )
        look.__interlock_view__ = declared  # type: ignore[attr-defined] # read back by Flow.views()
        return look

    return mark


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What a person signs in with. Never stored, never shown: `repr` hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, password=…)"


class Flow(ABC, Generic[P]):
    """One action on one kind of site. Subclass it, fill the class attributes, write the methods."""

    name: ClassVar[str]
    version: ClassVar[str]
    action: ClassVar[str]
    """Shared by all flows that do the same thing to one kind of destination ("publish-post"), so that the same intent
    is recognised whichever flow carries it (A4)."""
    summary: ClassVar[str]
    payload_model: ClassVar[type[Payload]]
    immaterial: ClassVar[tuple[str, ...]] = ()
    """Payload fields that cannot change the effect. Everything else is material (A3)."""
    unordered: ClassVar[tuple[str, ...]] = ()
    """Material fields that are sets: compared and fingerprinted sorted."""

    effect: ClassVar[Effect]
    supporting: ClassVar[tuple[Write, ...]] = ()
    trailing: ClassVar[tuple[Write, ...]] = ()
    contract: ClassVar[Contract]
    session_cookies: ClassVar[tuple[str, ...]]
    """Names (with * for any run of characters) of the cookies that carry the login."""
    proof_cookies: ClassVar[tuple[str, ...]] = ()
    """Those of them that go with the effect request as well as with the composer's page, where a site binds some to a
    path; page and effect are compared by these. Empty: all session cookies."""
    dialogs: ClassVar[tuple[DialogRule, ...]] = ()
    override_names: ClassVar[tuple[str, ...]] = ()
    """Further header or query names by which this site changes a request's method."""
    secret_fields: ClassVar[tuple[str, ...]] = ()
    """Form and JSON fields whose values are masked in evidence, beside the usual ones."""
    secret_regions: ClassVar[tuple[str, ...]] = ()
    """CSS selectors that are painted over on pictures."""
    login_writes: ClassVar[tuple[Write, ...]] = ()
    websockets: ClassVar[tuple[WebSocket, ...]] = ()
    """WebSockets that may be open while `prepare` runs. All others are refused, and these at any other time."""

    def canonical_destination(self, destination: str) -> str:
        """One spelling for one place: scheme and host in lower case, no default port, no trailing dot or slash, no
        query or fragment. Override where a site has more spellings. Raises ValueError with one sentence."""
        parts = urlsplit(destination.strip())
        if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
            raise ValueError(f"destination {destination!r} is not an absolute http or https address")
        if parts.username or parts.password:
            raise ValueError("a destination may not carry a user name or password")
        try:
            port = parts.port
        except ValueError as error:
            raise ValueError(f"destination {destination!r} has no valid port") from error
        if port == 0:
            raise ValueError(f"destination {destination!r} has no valid port")
        port = port or (443 if parts.scheme.lower() == "https" else 80)
        host = parts.hostname.lower().rstrip(".")  # "cms.example." is the same host, spelt as a full name
        if any(one.isspace() for one in destination.strip()) or not _is_plain_host(host):
            # A browser would take "127.1" or "ex%61mple.org" for another spelling of a host, and so show another one.
            raise ValueError(f"destination {destination!r} is not spelt as a browser shows it")
        return origin_of(parts.scheme.lower(), host, port) + parts.path.rstrip("/")

    def material(self, payload: P) -> dict[str, Any]:
        """The approved fields in normal form, to which page and wire are compared. Override to normalise."""
        fields = payload.model_dump(mode="json")
        return {
            key: sorted(value) if key in self.unordered else value
            for key, value in fields.items()
            if key not in self.immaterial
        }

    def common_material(self, payload: P) -> dict[str, Any]:
        """The projection of the material that all flows with this action share, for look-alikes (A4)."""
        return self.material(payload)

    @abstractmethod
    async def prepare(self, page: ComposerPage, intent: Intent[P]) -> Submit:
        """Fill the composer up to, and not including, the last gesture; name its control."""

    @abstractmethod
    async def identify(self, page: ComposerPage, intent: Intent[P]) -> Identity:
        """Read from the composer who is logged in and where it publishes."""

    @abstractmethod
    async def composed(self, page: ComposerPage, intent: Intent[P]) -> Material:
        """Read the composed material back from the page, in the normal form of `material`."""

    async def validation_message(self, page: ComposerPage, intent: Intent[P]) -> str | None:
        """What the page says is wrong when nothing left after the gesture; None when it says nothing."""
        return None

    async def login(self, page: ComposerPage, destination: str, credentials: Credentials) -> None:
        """Sign in by form. Only `login_writes` may leave. Raises when the site does not let the person in."""
        raise NotImplementedError(f"flow {self.name} has no login by form")

    @classmethod
    def views(cls) -> tuple[View, ...]:
        """The views of this flow, in the order in which they are written."""
        found: dict[str, View] = {}
        for klass in reversed(cls.__mro__):
            for value in vars(klass).values():
                if isinstance(declared := getattr(value, "__interlock_view__", None), View):
                    found[declared.name] = declared
        return tuple(found.values())

    @classmethod
    def code_digest(cls) -> str:
        """SHA-256 over the source of every module that the flow's classes are written in, this vocabulary excepted.
        An approval binds it: changed code needs a new approval (B1)."""
        digest = hashlib.sha256()
        for klass in cls.__mro__:
            if klass.__module__ in (__name__, "builtins", "abc", "typing"):
                continue
            source = inspect.getsource(cast(Any, inspect.getmodule(klass)))
            digest.update(klass.__qualname__.encode() + b"\0" + source.encode() + b"\0")
        return digest.hexdigest()


def _is_plain_host(host: str) -> bool:
    """Whether a browser would leave this host as it is (WHATWG URL, section 3.5): letters, digits and hyphens in ASCII,
    or an IP address in its one spelling."""
    if ":" in host or re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]):
        try:
            return str(ip_address(host)) == host and "%" not in host
        except ValueError:
            return False
    return re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", host) is not None


def describe(flow: type[Flow[Any]]) -> Mapping[str, object]:
    """What `interlock flows show` prints of a flow: plain JSON values."""
    contract = flow.contract
    return {
        "name": flow.name,
        "version": flow.version,
        "code_digest": flow.code_digest(),
        "action": flow.action,
        "summary": flow.summary,
        "payload": flow.payload_model.model_json_schema(),
        "material": [key for key in flow.payload_model.model_fields if key not in flow.immaterial],
        "effect": {"name": flow.effect.name, "method": flow.effect.method, "path": flow.effect.path},
        "supporting_writes": [_write(write) for write in flow.supporting],
        "trailing_writes": [_write(write) for write in flow.trailing],
        "websockets": [{"name": one.name, "path": one.path} for one in flow.websockets],
        "views": [
            {
                "name": v.name,
                "opens": list(v.opens),
                "fetches": list(v.fetches),
                "reads": [{"name": r.name, "method": r.method, "path": r.path} for r in v.reads],
                "lists": v.lists,
            }
            for v in flow.views()
        ],
        "contract": {
            "category": contract.category.value,
            "undo": contract.undo.value,
            "undo_instructions": contract.undo_instructions,
            "absence": contract.absence and contract.absence.statement,
            "policy": contract.policy.value,
            "client_key": contract.key and _client_key(contract.key),
            "look_before": contract.look_before,
            "look_after": contract.look_after,
            "effect_window_s": contract.effect_window_s,
            "answer_deadline_s": contract.answer_deadline_s,
            "notes": list(contract.notes),
        },
        "session_cookies": list(flow.session_cookies),
    }


def _client_key(key: ClientKey) -> Mapping[str, object]:
    return {
        "carried_in": f"header {key.header}" if key.header is not None else f"field {key.field}",
        "scope": key.scope,
        "lifetime_s": key.lifetime_s,
        "margin_s": key.margin_s,
        "attempts": key.attempts,
        "same_fields": list(key.same_fields),
    }


def _write(write: Write) -> Mapping[str, object]:
    return {
        "name": write.name,
        "method": write.method,
        "path": write.path,
        "may_cause_effect": write.may_cause_effect,
    }

"""Is a flow class complete? One sentence that names the first thing wrong with its declarations, or none.

Reads class attributes only. It starts no browser and calls no method that an author wrote, apart from the
constructor: how a flow behaves on its site is for its own tests.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from flows.effect import AbsenceGuarantee, ClientKey, Contract, Effect, Policy, Read, WebSocket, Write
from flows.flow import DialogRule, Flow, Payload, View

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_METHOD = re.compile(r"[A-Z]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z\[\]-]+")
_REQUIRED: tuple[tuple[str, type, str], ...] = (
    ("name", str, 'a name such as "my-site"'),
    ("version", str, 'a version such as "1"'),
    ("action", str, 'an action such as "publish-post"'),
    ("summary", str, "one sentence that says what the flow does"),
    ("effect", Effect, "an Effect"),
    ("contract", Contract, "a Contract"),
)
_TUPLES: tuple[tuple[str, type], ...] = (
    ("immaterial", str),
    ("unordered", str),
    ("session_cookies", str),
    ("proof_cookies", str),
    ("override_names", str),
    ("secret_fields", str),
    ("secret_regions", str),
    ("supporting", Write),
    ("trailing", Write),
    ("login_writes", Write),
    ("websockets", WebSocket),
    ("dialogs", DialogRule),
)


def problem(candidate: object) -> str | None:
    """What is wrong with a flow class, as the rest of a sentence that begins with its name; None when it is complete.

    The checks build on each other, so only the first finding is given.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, Flow)):
        return "is not a class derived from flows.flow.Flow"
    for check in _CHECKS:
        for finding in check(candidate):
            return finding
    return None


def _methods(flow: type[Flow[Any]]) -> Iterator[str]:
    if missing := sorted(flow.__abstractmethods__):
        yield f"has no method {' and no method '.join(missing)}"
    for name in ("prepare", "identify", "composed", "validation_message", "login"):
        if not inspect.iscoroutinefunction(getattr(flow, name)):
            yield f"has a method {name} that is not `async def`"


def _required(flow: type[Flow[Any]]) -> Iterator[str]:
    for name, kind, wanted in _REQUIRED:
        value = getattr(flow, name, None)
        if value is None:
            yield f"does not declare {name}: it needs {wanted}"
        elif not isinstance(value, kind):
            yield f"declares {name} as {type(value).__name__}: it needs {wanted}"
        elif isinstance(value, str) and not value.strip():
            yield f"leaves {name} empty: it needs {wanted}"
    for name in ("name", "action"):
        if not _NAME.fullmatch(getattr(flow, name)):
            yield f"has the {name} {getattr(flow, name)!r}: use lower-case letters, digits and single hyphens"


def _tuples(flow: type[Flow[Any]]) -> Iterator[str]:
    for name, kind in _TUPLES:
        value = getattr(flow, name, None)
        if value is None:
            yield f"does not declare {name}: it needs a tuple of {kind.__name__}"
        elif not isinstance(value, tuple):
            yield f"declares {name} as {type(value).__name__}: it needs a tuple (a trailing comma makes one)"
        elif any(not isinstance(part, kind) for part in value):
            yield f"has something in {name} that is no {kind.__name__}"
    if not flow.session_cookies:
        yield "names no session cookie, so the effect could not be tied to the account that was read"


def _payload(flow: type[Flow[Any]]) -> Iterator[str]:
    model = getattr(flow, "payload_model", None)
    if not (isinstance(model, type) and issubclass(model, Payload)):
        yield "does not declare payload_model: it needs a class derived from flows.flow.Payload"
        return
    fields = set(model.model_fields)
    if unknown := sorted(set(flow.immaterial) - fields):
        yield f"names {', '.join(unknown)} as immaterial, and the payload has no such field"
    material = fields - set(flow.immaterial)
    if not material:
        yield "has no material field, so there is nothing that could be approved"
    if unknown := sorted(set(flow.unordered) - material):
        yield f"names {', '.join(unknown)} as unordered, and the payload has no such material field"


def _requests(flow: type[Flow[Any]]) -> Iterator[str]:
    rules: list[tuple[str, Effect | Write]] = [("the effect", flow.effect)]
    rules += [(f"the write {write.name!r}", write) for write in flow.supporting + flow.trailing + flow.login_writes]
    for label, rule in rules:
        if not rule.name.strip():
            yield f"gives {label} no name"
        if not _METHOD.fullmatch(rule.method):
            yield f"gives {label} the method {rule.method!r}: write it in capitals"
        if fault := _pattern_fault(rule.path):
            yield f"gives {label} a path that is no regular expression ({fault})"
        for name in ("matches", "material", "count", "item"):
            if (value := getattr(rule, name, None)) is not None and not callable(value):
                yield f"gives {label} a {name} that cannot be called"
    for place in ("supporting", "trailing", "login_writes"):
        names = [write.name for write in getattr(flow, place)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"has two writes named {twice[0]!r} in {place}"
    for websocket in flow.websockets:
        yield from _websocket(websocket)
    for dialog in flow.dialogs:
        if fault := _pattern_fault(dialog.message):
            yield f"has a dialog rule whose message is no regular expression ({fault})"
        elif dialog.accept and dialog.kind != "beforeunload" and re.search(dialog.message, ""):
            yield f"accepts any dialog by the rule {dialog.message!r}: say what the message of the one is"


def _websocket(websocket: WebSocket) -> Iterator[str]:
    label = f"the WebSocket {websocket.name!r}"
    if not websocket.name.strip():
        yield f"gives {label} no name"
    if fault := _pattern_fault(websocket.path):
        yield f"gives {label} a path that is no regular expression ({fault})"
    if not callable(getattr(websocket, "sends", None)):
        yield f"gives {label} a sends that cannot be called"
    if websocket.origin is not None and not websocket.origin.startswith(("http://", "https://")):
        yield f"gives {label} the origin {websocket.origin!r}: write it with http:// or https://"
    protocols: object = websocket.protocols
    if not isinstance(protocols, tuple):
        yield f"gives {label} protocols that are no tuple (a trailing comma makes one)"


def _views(flow: type[Flow[Any]]) -> Iterator[str]:
    views = flow.views()
    for view in views:
        if not view.opens:
            yield f"has the view {view.name!r}, which may open no page"
        if not inspect.iscoroutinefunction(view.look):
            yield f"has the view {view.name!r}, which is not `async def`"
        if any(not isinstance(read, Read) for read in view.reads):
            yield f"has something in the reads of the view {view.name!r} that is no Read"
        for read in view.reads:
            yield from _read(view, read)
    if (flow.contract.look_before or flow.contract.look_after) and not views:
        yield "allows looks in its contract and has no view: add one, or forbid looking"
    if flow.contract.absence is not None:
        yield from _absence(flow.contract.absence, views)


def _read(view: View, read: Read) -> Iterator[str]:
    if not read.name.strip() or not _callable(read.matches):
        yield f"has a read of the view {view.name!r} without a name or without a predicate"
    if read.method != "POST":
        yield f"declares the read {read.name!r} with the method {read.method!r}: only a POST may be declared as a read"
    if fault := _pattern_fault(read.path):
        yield f"gives the read {read.name!r} a path that is no regular expression ({fault})"


def _absence(absence: AbsenceGuarantee, views: tuple[View, ...]) -> Iterator[str]:
    if absence.view not in {view.name for view in views}:
        yield f"guarantees absence by the view {absence.view!r}, and there is no view of that name"
    if not 0 <= absence.consistency_window_s < math.inf:
        yield "guarantees absence after a window that is no time of 0 s or more"
    if not absence.statement.strip():
        yield "guarantees absence without the sentence that a person reads"


def _contract(flow: type[Flow[Any]]) -> Iterator[str]:
    contract = flow.contract
    if not _callable(contract.read_answer):
        yield "has a contract whose read_answer cannot be called"
    if not contract.undo_instructions.strip():
        yield "does not say in its contract how a person undoes the effect"
    for name in ("effect_window_s", "answer_deadline_s"):
        if not 0 < getattr(contract, name) < math.inf:
            yield f"has a contract whose {name} is no time above 0 s"
    if not 0 <= contract.trailing_s < math.inf:
        yield "has a contract whose trailing_s is no time of 0 s or more"
    if contract.key is not None:
        yield from _key(contract.key, set(flow.payload_model.model_fields) - set(flow.immaterial))
    yield from _policy(flow)


def _policy(flow: type[Flow[Any]]) -> Iterator[str]:
    if not _is_policy(flow.contract.policy):
        yield f"has a contract whose policy is {flow.contract.policy!r}: use flows.effect.Policy"
    if flow.contract.policy is not Policy.IDEMPOTENT:
        return
    if flow.contract.key is None:
        yield "has the policy idempotent and no client key: only a key that the site honours makes repetition safe"
    if keyless := [write.name for write in flow.supporting + flow.trailing if write.may_cause_effect]:
        yield f"has the policy idempotent and the write {keyless[0]!r}, which may cause the effect without the key"


def _key(key: ClientKey, fields: set[str]) -> Iterator[str]:
    if (key.header is None) == (key.field is None):
        yield "has a client key that names not exactly one of header and field"
    elif not _TOKEN.fullmatch(key.header if key.header is not None else key.field or ""):
        yield "has a client key in a header or field whose name is no name"
    if not 0 < key.lifetime_s < math.inf or key.attempts < 1:
        yield "has a client key without a lifetime or without an attempt"
    if not 0 <= key.margin_s < key.lifetime_s:
        yield "has a client key whose margin_s is not below its lifetime, so it could never be sent again"
    if not key.scope.strip():
        yield "does not say in its client key for what the site remembers it (scope)"
    if unknown := sorted(set(key.same_fields) - fields):
        yield f"has a client key that holds {', '.join(unknown)} fixed, and the payload has no such material field"


def _source(flow: type[Flow[Any]]) -> Iterator[str]:
    try:
        flow.code_digest()
    except (OSError, TypeError) as error:
        yield f"has no readable source, so an approval could not bind its code ({error})"


def _constructor(flow: type[Flow[Any]]) -> Iterator[str]:
    try:
        flow()
    except Exception as error:  # noqa: BLE001 - an author's constructor may raise anything; it is reported here
        yield f"cannot be made without arguments ({type(error).__name__}: {error})"


_CHECKS: tuple[Callable[[type[Flow[Any]]], Iterator[str]], ...] = (
    _methods,
    _required,
    _tuples,
    _payload,
    _requests,
    _contract,
    _views,
    _source,
    _constructor,
)


def _is_policy(value: object) -> bool:
    """Whether a value that is declared as a policy is one."""
    return isinstance(value, Policy)


def _callable(value: object) -> bool:
    """Whether a value that is declared as a function is one."""
    return callable(value)


def _pattern_fault(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return None

"""The sentences that a receipt makes from the record, and the payload that it cuts out of the record's free text.

Pure. A sentence here may say less than the record, never more (E4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from executor.model.ending import Ending
from executor.model.operation import Intent, Operation
from executor.model.verdict import Discrepancy, VerdictReason
from executor.receipts.guidance import Standing

_SHORTEST = 4
"""Characters. Shorter payload values ("a", "yes") are left: cutting them out would make text unreadable."""

_DONE = {
    "publish": "published",
    "send": "sent",
    "order": "ordered",
    "post": "posted",
    "book": "booked",
    "pay": "paid",
    "submit": "submitted",
}


def done(action: str) -> str:
    """An action's first word as a participle: "publish-post" is "published", an unknown verb is "carried out"."""
    return _DONE.get(action.partition("-")[0], "carried out")


def verdict_line(
    standing: Standing,
    action: str,
    discrepancy: Discrepancy | None,
    reason: VerdictReason | None,
    *,
    by_key: bool = False,
) -> str:
    """The first line of a receipt: where it stands, and the one thing to know. `by_key`: the provider's key makes
    another run of this very operation safe."""
    word = done(action)
    match standing:
        case Standing.NOT_RUN:
            return "NOT RUN — nothing was submitted."
        case Standing.REFUSED:
            return "REFUSED — nothing was submitted."
        case Standing.HALTED:
            return "HALTED — nothing was submitted."
        case Standing.STARTED:
            return f"STARTED — it has no end yet; it may have been {word}. Do not submit again."
        case Standing.NOT_SENT:
            return "NOT SENT — it is proven that the request did not leave."
        case Standing.UNKNOWN if by_key:
            return f"UNKNOWN — it may have been {word}. Do not submit it but by running this operation again."
        case Standing.UNKNOWN:
            return f"UNKNOWN — it may have been {word}. Do not submit again."
        case Standing.ACCEPTED:
            return "ACCEPTED — the site took it in and has not finished it. Do not submit again."
        case Standing.SUCCEEDED if discrepancy is not None:
            return f"SUCCEEDED — it was {word}, and something about it needs a review."
        case Standing.SUCCEEDED:
            return f"SUCCEEDED — it was {word}. Do not submit again."
        case Standing.REJECTED if reason is VerdictReason.ABSENT_UNDER_GUARANTEE:
            return "REJECTED — it is not there, under the contract's guarantee."
        case Standing.REJECTED:
            return "REJECTED — the site states that it was not carried out."


def unknowns(standing: Standing, operation: Operation, ending: Ending | None) -> tuple[str, ...]:
    """What the record leaves open, one sentence each."""
    return tuple(_unknowns(standing, operation, ending))


def _unknowns(standing: Standing, operation: Operation, ending: Ending | None) -> Iterator[str]:
    word = done(operation.intent.action)
    if standing is Standing.STARTED:
        yield "Whether the run is still alive."
    if standing.unresolved:
        yield f"Whether it was {word}."
    if standing is Standing.ACCEPTED:
        yield "Whether and when the site will finish it."
    if ending is None:
        return
    if ending.discrepancy is not None:
        yield f"Why what was seen does not fit together ({ending.discrepancy.value})."
    for look in ending.looks:
        if look.when == "after" and look.result == "could_not_look":
            yield f"What the view {look.view} would have shown: it could not look."
        elif look.when == "after" and look.result == "partial":
            yield f"What the view {look.view} does not list: it read a part only ({look.scope})."
    collateral = sorted({write.name for write in ending.left if write.kind in ("supporting", "trailing")})
    if collateral:
        yield f"Whether what other writes left at the site is still there ({', '.join(collateral)})."
    for name in sorted({one.name for one in ending.websockets}):
        sent = sum(one.messages_out for one in ending.websockets if one.name == name)
        said = f"{sent} message{'' if sent == 1 else 's'} of the page"
        yield f"What the site made of {said} over the WebSocket {name}: nobody can tell from a message what it causes."
    if ending.effect is not None and ending.effect.from_page_only:
        yield f"Whether the request carried {', '.join(ending.effect.from_page_only)} as the page showed it."
    if ending.baseline is None and ending.attempt is not None:
        yield "Which items were there before the submit: the list could not be read."


@dataclass(frozen=True, slots=True)
class Payloadless:
    """Cuts the values of an operation's payload out of text. Callable: text to text (A11)."""

    values: tuple[tuple[str, str], ...]
    """Value and the name of its field, the longest first."""

    @classmethod
    def of(cls, intent: Intent) -> Self:
        found: dict[str, str] = {}
        for source in (intent.payload, intent.material, intent.common):
            for name, value in _texts(source):
                for part in (value, *value.splitlines()):
                    if len(part := part.strip()) >= _SHORTEST:
                        found.setdefault(part, name)
        return cls(tuple(sorted(found.items(), key=lambda pair: -len(pair[0]))))

    def __call__(self, text: str) -> str:
        for value, name in self.values:
            text = text.replace(value, f"[{name}]")
        return text


def _texts(value: object, name: str = "payload") -> Iterator[tuple[str, str]]:
    """Every text in a JSON value with the name of the top-level field that it is in."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, str(key) if name == "payload" else name)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for inner in value:
            yield from _texts(inner, name)

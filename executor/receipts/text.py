"""A receipt as plain text that a person can act on in a minute: at most 80 columns, no colours, no markup (E1).
Only a word of a command may be longer: broken, it could not be pasted.

Rendered from the receipt alone. What the record quotes is printed without control characters, so that a page or a
server cannot write to the reader's terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePosixPath

from executor.model.step_table import STEPS
from executor.receipts.guidance import Standing
from executor.receipts.schema import EffectRequestSeen, Look, Receipt

WIDTH = 80
_LABEL = 16
_SHOWN = 8
"""Entries of a long list that are printed; the JSON has them all."""


def render_text(receipt: Receipt) -> str:
    """The whole receipt, ending in a newline."""
    lines: list[str] = []
    lines += _wrap(receipt.verdict)
    if receipt.reason is not None:
        lines += _wrap(receipt.reason.sentence)
        if receipt.reason.detail not in ("", receipt.reason.sentence):
            lines += _wrap(f"The run recorded: {receipt.reason.detail}")
    for title, body in (
        ("What to do", _permitted(receipt)),
        ("What not to do", _bullets(item.sentence for item in receipt.prohibited)),
        ("What stays unknown", _bullets(receipt.unknown)),
        ("Who and until when", _ownership(receipt)),
        ("Authorized", _authorized(receipt)),
        ("Attempted", _attempted(receipt)),
        ("Observed", _observed(receipt)),
        ("To look with", _handle(receipt)),
        ("Undo", _undo(receipt)),
        ("Evidence", _evidence(receipt)),
        ("Record", _record(receipt)),
        ("Timeline", _timeline(receipt)),
    ):
        if block := list(body):
            lines += ["", title, *block]
    return "\n".join(lines) + "\n"


def _permitted(receipt: Receipt) -> Iterator[str]:
    for number, item in enumerate(receipt.permitted, start=1):
        yield from _wrap(item.sentence, first=f"  {number}. ", rest="     ")
        if item.command is not None:
            yield from _command(item.command)


def _command(command: str) -> Iterator[str]:
    """Over several lines it can still be pasted: broken between words alone, each line but the last continued."""
    words = re.findall(r"(?:'[^']*'|\S)+", _plain(command))
    line = "     $"
    for word in words:
        if len(line) + len(word) + 3 > WIDTH and line.strip() != "$":
            yield f"{line} \\"
            line = "      "
        line += f" {word}"
    yield line


def _bullets(sentences: Iterator[str] | tuple[str, ...]) -> Iterator[str]:
    for sentence in sentences:
        yield from _wrap(sentence, first="  - ", rest="    ")


def _ownership(receipt: Receipt) -> Iterator[str]:
    if receipt.ownership.owner is None:
        return
    yield from _fact("owner", receipt.ownership.owner)
    if receipt.ownership.queue is not None:
        yield from _fact("queue", receipt.ownership.queue)
    yield from _fact("respond by", _time(receipt.ownership.respond_by))


def _authorized(receipt: Receipt) -> Iterator[str]:
    authorized = receipt.authorized
    yield from _fact("account", authorized.account)
    yield from _fact("destination", authorized.destination)
    yield from _fact("action", authorized.action)
    yield from _fact("flow", f"{authorized.flow} {authorized.flow_version}")
    yield from _fact("fingerprint", authorized.fingerprint)
    yield from _fact("proposed by", f"{authorized.proposed_by}, {_time(receipt.times.proposed)}")
    if (approval := authorized.approval) is None:
        yield from _fact("approval", "none")
    else:
        yield from _fact("approval", f"{approval.reference} by {approval.by}, {_time(approval.at)}")
        yield from _fact("expires", _time(approval.expires))
        if approval.revoked_at is not None:
            yield from _fact("revoked", _time(approval.revoked_at))
    if authorized.deadline is not None:
        yield from _fact("deadline", _time(authorized.deadline))


def _attempted(receipt: Receipt) -> Iterator[str]:
    attempted, times = receipt.attempted, receipt.times
    if receipt.ids.attempt is None:
        yield from _fact("attempt", "none: no submit was reserved")
    else:
        yield from _fact("attempt", f"{receipt.ids.attempt} (number {receipt.ids.attempts})")
        yield from _fact("dispatch", f"started {_time(times.dispatch_started)}")
        gesture = f"recorded {_time(times.gesture)}" if attempted.gesture_recorded else "not recorded"
        yield from _fact("gesture", gesture)
        yield from _fact("release", f"committed {_time(times.released)}" if attempted.released else "none")
        yield from _fact("releases", f"{attempted.dispatches} over all attempts")
    for made in attempted.attempts[:-1][-_SHOWN:]:
        left = f"released {_time(made.released)}" if made.released is not None else "not released"
        yield from _fact("before it", f"{made.id} (number {made.number}), {left}, {made.transmission.value}")
    if receipt.stage is not None:
        # The last step is where every run ends that was not stopped before.
        does = "the last" if receipt.stage.number == len(STEPS) else receipt.stage.does
        yield from _fact("ended in", f"step {receipt.stage.number}, {receipt.stage.name}: {does}")
    if receipt.failure is not None:
        yield from _fact("class", f"{receipt.failure.failure_class.value}: {receipt.failure.response}")
    if receipt.reason is not None:
        yield from _fact("reason", f"{receipt.reason.code}, noticed by the {receipt.reason.detector.value}")
        if receipt.reason.because:
            yield from _fact("because of", ", ".join(receipt.reason.because))
    collateral = [write for write in attempted.left if write.kind != "effect"]
    for write in collateral[:_SHOWN]:
        item = f", item {write.item}" if write.item else ""
        yield from _fact("also left", f"{write.name}: {write.method} {write.url} ({write.status or 'no answer'}){item}")
    if len(collateral) > _SHOWN:
        yield from _fact("also left", f"and {len(collateral) - _SHOWN} more")
    for one in attempted.websockets[:_SHOWN]:
        counted = f"messages {one.messages_out} out, {one.messages_in} in"
        yield from _fact("websocket", f"{one.name}: {one.url}, {counted}; {one.ended}")
    for refused in attempted.refused_writes[:_SHOWN]:
        yield from _fact("refused", refused)
    if attempted.dialogs:
        yield from _fact("dialogs", str(attempted.dialogs))


def _observed(receipt: Receipt) -> Iterator[str]:
    observed = receipt.observed
    if observed.answer is not None:
        whole = "complete" if observed.answer.complete else "cut off"
        yield from _fact("answer", f"status {observed.answer.status}, {whole}; it says {observed.answer.says}")
        yield from _fact("clause", observed.answer.clause)
    elif receipt.attempted.released:
        yield from _fact("answer", "none was read")
    for look in observed.looks:
        yield from _fact(f"look {look.when}", _look(look))
    if observed.verdict_reason is not None:
        yield from _fact("verdict", f"{observed.verdict_reason.value}: {observed.verdict_why}")
    if observed.effect is not None:
        yield from _fact("effect", observed.effect)
    if observed.item is not None:
        yield from _fact("item", observed.item)
    if observed.item_url is not None:
        yield from _fact("address", observed.item_url)
    if observed.discrepancy is not None:
        yield from _fact("discrepancy", observed.discrepancy.value)
    if receipt.read_from_page_only:
        yield from _fact("page only", ", ".join(receipt.read_from_page_only))


def _look(look: Look) -> str:
    found = ", ".join(f"{item.id} ({item.state}, {item.strength})" for item in look.items[:_SHOWN])
    parts = [f"{look.view}: {look.result}", found, f"scope {look.scope}" if look.scope else "", look.detail]
    return "; ".join(part for part in parts if part) + ("" if look.complete else "; not complete")


def _handle(receipt: Receipt) -> Iterator[str]:
    """Only where somebody has to look."""
    if not receipt.standing.unresolved and receipt.standing is not Standing.ACCEPTED:
        return
    handle = receipt.handle
    yield from _fact("our reference", handle.reference)
    if handle.provider_key is not None:
        yield from _fact("provider key", handle.provider_key.key)
    yield from _fact("as account", f"{handle.account} at {handle.destination}")
    if handle.effect_request is not None:
        yield from _effect_request(handle.effect_request)
    if handle.baseline is None:
        yield from _fact("there before", "not read")
    else:
        ids = ", ".join(handle.baseline[:_SHOWN])
        more = f", and {len(handle.baseline) - _SHOWN} more" if len(handle.baseline) > _SHOWN else ""
        yield from _fact("there before", f"{ids}{more}" if ids else "nothing was listed")


def _effect_request(effect: EffectRequestSeen) -> Iterator[str]:
    yield from _fact("request", f"{effect.method} {effect.url}")
    if effect.query_names:
        yield from _fact("query names", ", ".join(effect.query_names))
    yield from _fact("body", f"{effect.body_length} bytes, SHA-256:")
    yield from _fact("", effect.body_sha256)
    yield from _fact("released", _time(effect.released_at))


def _undo(receipt: Receipt) -> Iterator[str]:
    if receipt.undo is None or not receipt.attempted.released:
        return
    yield from _fact("kind", f"{receipt.undo.category.value}, {receipt.undo.undo.value}")
    yield from _fact("how", receipt.undo.instructions)


def _evidence(receipt: Receipt) -> Iterator[str]:
    evidence = receipt.evidence
    if evidence is None:
        return
    folder = PurePosixPath(evidence.manifest).parent
    items = f"{evidence.items} item{'' if evidence.items == 1 else 's'}"
    yield from _fact("folder", str(folder))
    yield from _fact("", "(in the home folder; names below are in it)")
    yield from _fact("manifest", f"{_below(folder, evidence.manifest)} ({items}), SHA-256:")
    yield from _fact("", evidence.manifest_sha256)
    for picture in evidence.pictures:
        about = ", ".join(part for part in (picture.point, picture.label, picture.note) if part)
        yield from _fact("picture", f"{_below(folder, picture.path)} ({about})")
    for gap in evidence.gaps:
        yield from _fact("gap", gap)


def _below(folder: PurePosixPath, path: str) -> str:
    place = PurePosixPath(path)
    return str(place.relative_to(folder)) if place.is_relative_to(folder) else path


def _record(receipt: Receipt) -> Iterator[str]:
    dimensions = receipt.dimensions
    yield from _fact("operation", receipt.ids.operation)
    yield from _fact("task", receipt.ids.task)
    if receipt.ids.run is not None:
        yield from _fact("run", receipt.ids.run)
    sent = dimensions.transmission.value if dimensions.transmission else "no attempt"
    yield from _fact("permission", dimensions.permission.value)
    yield from _fact("dispatch", f"{dimensions.dispatch.value} (transmission: {sent})")
    yield from _fact("outcome", dimensions.outcome.value)
    yield from _fact("disposition", dimensions.disposition.value)
    yield from _fact("policy", f"{receipt.retry.policy.value}: {receipt.retry.sentence}")
    if receipt.retry.until is not None:
        yield from _fact("key until", _time(receipt.retry.until))
    yield from _fact("automatic", "writes are disabled")
    yield from _fact("version", f"{receipt.record.version} events, the last one's hash:")
    yield from _fact("", receipt.record.chain_head)
    yield from _fact("made", _time(receipt.made_at))


def _timeline(receipt: Receipt) -> Iterator[str]:
    for event in receipt.timeline:
        why = f": {event.why}" if event.why else ""
        yield from _wrap(f"{event.kind} by {event.actor}{why}", first=f"  {_time(event.at)}  ", rest=" " * 8)


def _fact(label: str, value: str) -> list[str]:
    return _wrap(value, first=f"  {label:<{_LABEL - 2}}", rest=" " * _LABEL)


def _wrap(text: str, *, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(_plain(text), WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [
        first.rstrip()
    ]


def _plain(text: str) -> str:
    """One line without control, format or private characters: they could move a cursor or turn text around."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def _time(moment: datetime | None) -> str:
    """With its offset from UTC."""
    if moment is None:
        return "never"
    text = moment.isoformat(sep=" ", timespec="seconds")
    return f"{text[:19]} {text[19:]}"

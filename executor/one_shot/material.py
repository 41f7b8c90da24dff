"""Does the outgoing request carry what was approved (C3)? Pure: the effect request, the supporting writes that carried
content ahead of it, and the approved material.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from executor.gate.state import Carried
from executor.model.fingerprint import NotCanonical, canonical
from flows.effect import ClientKey, Effect, Material
from flows.wire import OutgoingRequest, UnreadableBody


@dataclass(frozen=True)
class OnTheWire:
    """What the wire shows. `differs` names fields that are not as approved, `unseen` those that it cannot show."""

    shown: Material
    differs: tuple[str, ...]
    unseen: tuple[str, ...]


def on_the_wire(
    effect: Effect,
    request: OutgoingRequest,
    carried: Sequence[Carried],
    approved: Material,
    doubtful: Sequence[float | None] = (),
) -> OnTheWire:
    """Compare. A field of the effect request counts before one carried ahead; among those carried ahead the last
    successful one for the effect's item wins. A field that was not approved at all is a difference. Raises what the
    flow's readers raise.

    A save wins over an earlier one only when it left after that one's answer: of two that overlap the site may have
    applied either last, so both are compared. The `doubtful` (see `Gate.doubtful`) may have been applied too: a field
    that the effect request does not show differs, unless a successful save left after their answer.
    """
    own = dict(effect.material(request))
    ahead: dict[str, list[tuple[float, Any]]] = {}
    doubts = list(doubtful)
    last = float("-inf")
    item = effect.item(request)
    for save in carried if item is not None else ():
        write = save.write
        if write.material is None or write.item is None:
            continue
        if not 200 <= save.answer.status < 300:
            doubts.append(save.answered_at)
        elif write.item(save.request, save.answer) == item:
            last = max(last, save.left_at)
            for name, value in write.material(save.request, save.answer).items():
                overlapping = [one for one in ahead.get(name, ()) if one[0] > save.left_at]
                ahead[name] = [*overlapping, (save.answered_at, value)]
    shown = {name: values[-1][1] for name, values in ahead.items()} | own
    compared = {name: [value for _, value in values] for name, values in ahead.items()}
    compared |= {name: [value] for name, value in own.items()}
    differs = [name for name, values in compared.items() if not all(_equal(approved, name, one) for one in values)]
    if item is not None and any(answered is None or answered > last for answered in doubts):
        differs += [f"{name} (a save without a success)" for name in approved if name not in own]
    unseen = tuple(sorted(name for name in approved if name not in shown))
    return OnTheWire(shown, tuple(sorted(differs)), unseen)


def carried_key(request: OutgoingRequest, key: ClientKey) -> str | None:
    """The client key that a request carries where the contract says; None when it is not there, not readable, or there
    more than once."""
    if key.header is not None:
        values = request.header_values(key.header)
        return values[0] if len(values) == 1 else None
    assert key.field is not None  # a flow that names neither is not loaded
    try:
        if request.content_type == "application/json" or request.content_type.endswith("+json"):
            value = request.json.get(key.field) if isinstance(request.json, dict) else None
            return value if isinstance(value, str) else None
        return request.form.get(key.field)
    except UnreadableBody:
        return None


def differences(approved: Material, read: Material) -> tuple[str, ...]:
    """The fields, by name, in which a reading of the page is not what was approved; missing ones included."""
    names = set(approved) | set(read)
    return tuple(sorted(name for name in names if name not in read or not _equal(approved, name, read[name])))


def _equal(approved: Material, name: str, value: Any) -> bool:
    if name not in approved:
        return False
    try:
        return canonical(approved[name]) == canonical(value)
    except NotCanonical:
        return False

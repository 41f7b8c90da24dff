"""Does the outgoing request carry what was approved (C3)? Pure: the effect request, the supporting writes that carried
content ahead of it, and the approved material.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from executor.gate.state import Carried
from executor.model.fingerprint import NotCanonical, canonical
from flows.effect import Effect, Material
from flows.wire import OutgoingRequest


@dataclass(frozen=True)
class OnTheWire:
    """What the wire shows. `differs` names fields that are not as approved, `unseen` those that it cannot show."""

    shown: Material
    differs: tuple[str, ...]
    unseen: tuple[str, ...]


def on_the_wire(effect: Effect, request: OutgoingRequest, carried: Sequence[Carried], approved: Material) -> OnTheWire:
    """Compare. A field of the effect request counts before one carried ahead; among those carried ahead the last
    successful one for the effect's item wins. A field that was not approved at all is a difference. Raises what the
    flow's readers raise."""
    shown: dict[str, Any] = {}
    item = effect.item(request)
    if item is not None:
        for ahead in carried:
            write = ahead.write
            if write.material is None or write.item is None or not 200 <= ahead.answer.status < 300:
                continue
            if write.item(ahead.request, ahead.answer) == item:
                shown.update(write.material(ahead.request, ahead.answer))
    shown.update(effect.material(request))
    differs = tuple(sorted(name for name, value in shown.items() if not _equal(approved, name, value)))
    unseen = tuple(sorted(name for name in approved if name not in shown))
    return OnTheWire(shown, differs, unseen)


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

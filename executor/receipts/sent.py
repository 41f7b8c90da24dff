"""What a receipt says about attempts and requests, from the record. Pure; addresses lose their query (A11)."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from executor.model.ending import EffectRequest
from executor.model.operation import Operation
from executor.receipts.schema import AttemptMade, EffectRequestSeen


def attempts_made(operation: Operation) -> tuple[AttemptMade, ...]:
    """Every attempt, the oldest first."""
    return tuple(
        AttemptMade(
            number=one.number,
            id=one.id,
            approval=one.approval,
            transmission=one.transmission,
            dispatch_started=one.claimed_at,
            gesture=one.gesture_at,
            released=one.released_at,
            answered=one.answered_at,
            closed=one.closed_at,
            reason=one.reason,
        )
        for one in operation.attempts
    )


def effect_request(effect: EffectRequest) -> EffectRequestSeen:
    return EffectRequestSeen(
        method=effect.method,
        url=without_query(effect.url),
        query_names=tuple(name for name, _ in parse_qsl(urlsplit(effect.url).query, keep_blank_values=True)),
        body_sha256=effect.body_sha256,
        body_length=effect.body_length,
        material_sha256=effect.material_sha256,
        released_at=effect.released_at,
    )


def without_query(url: str) -> str:
    """An address without query and fragment: both may carry content or a token."""
    return url.split("#", 1)[0].split("?", 1)[0]

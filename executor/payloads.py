"""A payload by its flow's model: parsed when it is proposed, parsed again when it is run.

Errors name fields, never their values (A11). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from executor.errors import BadInput
from executor.model.fingerprint import NotCanonical, canonical
from executor.model.operation import Operation
from flows import flow as vocabulary
from flows.flow import Flow, Payload


def parse_payload(flow: Flow[Any], payload: Mapping[str, Any] | Payload) -> Any:
    """The payload by the flow's model. Raises `BadInput` naming the fields, never their values (A11)."""
    given: object = payload.model_dump() if isinstance(payload, Payload) else payload
    if not isinstance(given, Mapping):
        raise BadInput(f"The payload of flow {flow.name} is fields by name, not {type(given).__name__}.")
    try:
        parsed = flow.payload_model.model_validate(dict(given))
        # A number out of range, or half of a surrogate pair: nothing that a page could show or a record keep.
        unfit = [name for name, value in parsed.model_dump(mode="json").items() if not _is_canonical(value)]
        if not unfit:
            return parsed
        problems = f"{', '.join(unfit)}: a value in it has no canonical form"
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in one['loc']) or 'payload'}: {_says(one['msg'])}"
            for one in error.errors(include_input=False, include_url=False, include_context=False)
        )
    # Not chained: the validator's own words hold the values, and a traceback would show them.
    raise BadInput(f"The payload does not fit flow {flow.name}: {problems}.")


def _says(message: str) -> str:
    """The validator's words, but for those that would show a class of ours instead of what to write."""
    return 'this is a file, written as {"path": "NAME"}' if "PayloadFile" in message else message


def _is_canonical(value: object) -> bool:
    try:
        canonical(value)
    except NotCanonical:
        return False
    return True


def for_the_flow(operation: Operation, flow: Flow[Any]) -> vocabulary.Intent[Any]:
    intent = operation.intent
    return vocabulary.Intent(
        task=intent.task,
        action=intent.action,
        destination=intent.destination,
        account=intent.account,
        payload=parse_payload(flow, intent.payload),
        reference=operation.id,
        key=operation.provider_key,
    )

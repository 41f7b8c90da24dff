"""`interlock propose`, `approve` and `revoke`: what is to happen, and a person's permission for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from executor.cli.surroundings import (
    AsJson,
    OperationId,
    actor,
    cell,
    err,
    executor,
    out,
    person,
    print_json,
    run,
)
from executor.errors import BadInput, NotAllowed

if TYPE_CHECKING:
    from executor.ledger.ledger import Proposed
    from executor.model.operation import Approval, Operation
    from executor.service import Executor


def propose(
    flow: Annotated[str, typer.Argument(help="A registered flow, or path/to/file.py:Class.")],
    site: Annotated[str, typer.Option("--site", help="The destination.")],
    account: Annotated[str, typer.Option("--account", help="The account to act as.")],
    task: Annotated[str, typer.Option("--task", help="What this is for; the same intent of the same task is one.")],
    payload: Annotated[str, typer.Option("--payload", metavar="FILE|-", help="A JSON object; - reads standard input.")],
    after: Annotated[list[str] | None, typer.Option("--after", metavar="OP", help="Must have succeeded first.")] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="ISO", help="Do not submit after, as 2030-01-31T12:00:00+01:00.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record what is to happen. The same intent again is the operation that it already is."""

    async def work() -> Proposed:
        async with executor() as service:
            return await service.propose(
                flow=flow,
                destination=site,
                account=account,
                payload=_with_files(service, payload),
                task=task,
                by=actor(),
                after=after or (),
                deadline=_deadline(deadline),
            )

    proposed = run(work())
    operation = proposed.operation
    if as_json:
        print_json(
            {
                "operation": operation.id,
                "created": proposed.created,
                "fingerprint": operation.fingerprint,
                "permission": operation.state.permission.value,
                "dispatch": operation.state.dispatch.value,
                "transmission": operation.state.transmission.value if operation.state.transmission else None,
                "outcome": operation.state.outcome.value,
            }
        )
    elif proposed.created:
        out().print(f"Proposed {operation.id}.\nNext, a person: interlock approve {operation.id}", markup=False)
        _warn_of_the_deadline(operation)
    else:
        out().print(f"This is {operation.id} already: {operation.state}.", markup=False)


def _warn_of_the_deadline(operation: Operation) -> None:
    """The ledger's clock decides at the claim; this only saves somebody from approving what cannot run."""
    deadline = operation.intent.deadline
    if deadline is not None and deadline <= datetime.now(UTC):
        err().print("Its deadline has passed: no run will submit it. Propose it anew with another one.", soft_wrap=True)


def _with_files(service: Executor, source: str) -> Mapping[str, Any]:
    """The payload, its files taken in; their paths count from the payload's own folder."""
    beside = Path.cwd() if source == "-" else Path(source).parent
    return service.payload_files.take_all(_payload(source), beside)


def _payload(source: str) -> Mapping[str, Any]:
    """The payload, read. Raises `BadInput` that names the place and never the content (A11)."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"The payload {source} cannot be read: {said}.") from error
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"The payload {source} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        ) from error
    if not isinstance(value, dict):
        raise BadInput(f"The payload {source} is not a JSON object with the flow's fields.")
    return value


def _deadline(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"The deadline {text!r} is no ISO 8601 time, such as 2030-01-31T12:00:00+01:00.") from error


def approve(
    operation: OperationId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; for a person's own scripts.")] = False,
    meant: Annotated[
        bool, typer.Option("--meant", help="It is meant, although another task publishes the same.")
    ] = False,
    valid_for: Annotated[
        float | None, typer.Option("--valid-for", metavar="SECONDS", help="How long it is good; a day without it.")
    ] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", metavar="N", help="Runs that it allows; more than 1 needs a key of the site.")
    ] = 1,
    why: Annotated[str, typer.Option("--why", help="The reason, for the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Permit exactly what is shown: this account, destination, material and code. Only a person may."""
    by = person("approve")

    async def work() -> Approval:
        async with executor() as service:
            found = await service.operation(operation)
            _show_what_is_approved(found, service.payload_files.kept(found.intent.payload))
            _warn_of_the_deadline(found)
            if attempts > 1:
                err().print(f"It may be run up to {attempts} times, each with the same key.", soft_wrap=True)
            if not yes and not _agreed():
                raise NotAllowed(f"Nothing was approved. {found.id} stays as it is.")
            return await service.approve(
                found.id,
                by=by,
                fingerprint=found.fingerprint,
                valid_for_s=valid_for,
                attempts=attempts,
                meant=meant,
                why=why,
            )

    approval = run(work())
    if as_json:
        print_json(
            {
                "approval": approval.id,
                "operation": approval.operation,
                "by": str(approval.by),
                "expires": approval.expires.isoformat(),
                "fingerprint": approval.fingerprint,
                "attempts": approval.attempts,
            }
        )
    else:
        until = approval.expires.isoformat(sep=" ", timespec="minutes")
        out().print(f"Approved {approval.operation} until {until}.", markup=False)
        out().print(f"Next: interlock run {approval.operation}", markup=False)


def _show_what_is_approved(operation: Operation, files: Mapping[str, Path]) -> None:
    """On standard error, so that `--json` keeps standard output to itself. Of a file, where to look at it: a name and a
    digest say nothing of what is in it."""
    intent = operation.intent
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in (
        ("operation", operation.id),
        ("task", intent.task),
        ("action", intent.action),
        ("account", intent.account),
        ("destination", intent.destination),
        ("flow", f"{operation.flow.name} {operation.flow.version}"),
        ("proposed by", operation.proposed_by),
        ("deadline", intent.deadline.isoformat() if intent.deadline else "none"),
        ("policy", operation.policy.value),
        *((f"material {name}", _shown(part)) for name, part in intent.material.items()),
        *((f"immaterial {name}", _shown(part)) for name, part in intent.payload.items() if name not in intent.material),
        *((f"look at {name}", str(path)) for name, path in files.items()),
        ("fingerprint", operation.fingerprint),
    ):
        table.add_row(label, cell(value))
    err().print(table)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _agreed() -> bool:
    try:
        return typer.confirm("Approve exactly this?", default=False, err=True)
    except typer.Abort:  # no terminal, or its end: nobody agreed
        return False


def revoke(
    operation: OperationId,
    why: Annotated[str, typer.Option("--why", help="The reason, for the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take the permission back. What has left already has left."""

    from executor.model.transitions import IllegalTransition

    async def work() -> Operation:
        async with executor() as service:
            try:
                return await service.revoke(operation, by=actor(), why=why)
            except IllegalTransition as error:
                raise NotAllowed(
                    f"There is no approval of {operation} to revoke: `interlock show {operation}` says where it stands."
                ) from error

    found = run(work())
    if as_json:
        print_json({"operation": found.id, "permission": found.state.permission.value})
    else:
        out().print(f"The permission for {found.id} is revoked.", markup=False)
        if found.attempts:
            out().print(f"It was dispatched before, and that stays: interlock receipt {found.id}", markup=False)

"""`interlock list`, `show` and `receipt`: what the record says. They change nothing but what opening always settles."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from executor.cli.surroundings import AsJson, OperationId, cell, executor, out, print_json, run
from executor.model.admission import stops_for
from executor.model.retry import Permits

if TYPE_CHECKING:
    from executor.ledger.ledger import Waiting
    from executor.model.operation import EventRecord, Operation, Stop
    from executor.receipts import Receipt
    from executor.receipts.schema import Retry

STYLES = {"succeeded": "green", "accepted": "cyan", "unknown": "bold yellow", "rejected": "red", "started": "yellow"}


def list_operations(
    unresolved: Annotated[bool, typer.Option("--unresolved", help="Only those that are started or unknown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show operations, the newest first, with what holds them: the stops in force, and waits after a halt."""

    async def work() -> tuple[Sequence[Operation], Sequence[Stop], Sequence[Waiting]]:
        async with executor() as service:
            shown = await service.operations(unresolved_only=unresolved)
            return shown, await service.stops(), await service.ledger.waiting()

    found, stops, waiting = run(work())
    waits = {one.operation: one for one in waiting}
    if as_json:
        print_json([{**plain(one), **_held(one, stops, waits.get(one.id))} for one in found])
        return
    console = out()
    for stop in stops:
        console.print(cell(f"Stopped by {stop.id}: {stop.why or 'no reason was given'}", "bold yellow"), soft_wrap=True)
    if not found:
        console.print("Nothing is unresolved." if unresolved else "There is no operation yet.")
        return
    console.print(
        cell(f"{'operation':<24} {'permission':<11} {'dispatch':<24} {'outcome':<11} age", "bold"), soft_wrap=True
    )
    for one in found:
        state = one.state
        line = cell(f"{one.id:<24} {state.permission.value:<11} {_dispatch(one):<24} ")
        line.append_text(cell(f"{state.outcome.value:<11} ", STYLES.get(state.outcome.value, "")))
        line.append(_age(one))
        console.print(line, soft_wrap=True)
        intent = one.intent
        console.print(cell(f"  {intent.task}: {intent.account} at {intent.destination}", "dim"), soft_wrap=True)
        if one.id in waits:
            console.print(cell(f"  {waits_sentence(waits[one.id])}", "yellow"), soft_wrap=True)


def show(operation: OperationId, as_json: AsJson = False) -> None:
    """Show one operation: its three dimensions, what crossed the wire, and every event."""

    async def work() -> tuple[Operation, Sequence[EventRecord], Sequence[Stop], Sequence[Waiting], Retry]:
        async with executor() as service:
            found = await service.operation(operation)
            retry = (await service.receipt(found.id)).retry
            events, stops = await service.events(found.id), await service.stops()
            return found, events, stops, await service.ledger.waiting(), retry

    found, events, stops, waiting, retry = run(work())
    wait = next((one for one in waiting if one.operation == found.id), None)
    if as_json:
        more = {**_held(found, stops, wait), "retry": retry.model_dump(mode="json")}
        print_json({**plain(found), **more, "events": [_event(one) for one in events]})
        return
    console = out()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in (*_facts(found), *_further(retry), *_holding(found, stops, wait)):
        facts.add_row(label, cell(value, STYLES.get(value, "")))
    console.print(facts)
    console.print()
    table = Table(box=None, pad_edge=False)
    for heading in ("#", "when (UTC)", "event"):
        table.add_column(heading, no_wrap=True)
    table.add_column("by, and why", overflow="fold")
    for one in events:
        moment = one.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        why = f"{one.actor}: {one.why}" if one.why else str(one.actor)
        table.add_row(*map(cell, (one.sequence, moment, one.kind, why)))
    console.print(table)


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def receipt(
    operation: OperationId,
    form: Annotated[Format, typer.Option("--format", help="Plain text for people, JSON for machines.")] = Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Print the receipt: what was authorised, attempted and observed, what stays unknown, what may be done."""
    from executor.receipts import render_text

    async def work() -> Receipt:
        async with executor() as service:
            return await service.receipt(operation)

    made = run(work())
    if as_json or form is Format.JSON:
        print_json(made)
    else:
        sys.stdout.write(render_text(made))


def plain(operation: Operation) -> dict[str, Any]:
    """An operation as JSON, without its payload (A11)."""
    intent, state = operation.intent, operation.state
    return {
        "operation": operation.id,
        "task": intent.task,
        "action": intent.action,
        "account": intent.account,
        "destination": intent.destination,
        "flow": operation.flow.name,
        "flow_version": operation.flow.version,
        "fingerprint": operation.fingerprint,
        "permission": state.permission.value,
        "dispatch": state.dispatch.value,
        "transmission": state.transmission.value if state.transmission else None,
        "outcome": state.outcome.value,
        "disposition": operation.disposition.value,
        "policy": operation.policy.value,
        "proposed_by": str(operation.proposed_by),
        "created_at": operation.created_at.isoformat(),
        "attempts": len(operation.attempts),
        "version": operation.version,
        "head": operation.head,
    }


def _facts(operation: Operation) -> list[tuple[str, str]]:
    intent, state, approval = operation.intent, operation.state, operation.approval
    return [
        ("operation", operation.id),
        ("task", intent.task),
        ("action", intent.action),
        ("account", intent.account),
        ("destination", intent.destination),
        ("flow", f"{operation.flow.name} {operation.flow.version}"),
        ("fingerprint", operation.fingerprint),
        ("permission", state.permission.value),
        ("dispatch", _dispatch(operation)),
        ("outcome", state.outcome.value),
        ("disposition", operation.disposition.value),
        ("policy", operation.policy.value),
        ("approval", f"{approval.id} by {approval.by} until {approval.expires.isoformat()}" if approval else "none"),
        ("attempts", str(len(operation.attempts))),
    ]


def _held(operation: Operation, stops: Sequence[Stop], wait: Waiting | None) -> dict[str, Any]:
    """What keeps it from running, apart from its own state."""
    return {
        "stopped_by": list(stops_for(stops, flow=operation.flow.name, account_key=operation.account_key)),
        "waits": None
        if wait is None
        else {"halt": wait.halt, "until": None if wait.until is None else wait.until.isoformat()},
    }


def _holding(operation: Operation, stops: Sequence[Stop], wait: Waiting | None) -> list[tuple[str, str]]:
    in_force = stops_for(stops, flow=operation.flow.name, account_key=operation.account_key)
    held = [("stopped by", f"{stop.id}: {stop.why}") for stop in stops if stop.id in in_force]
    return held if wait is None else [*held, ("waits", waits_sentence(wait))]


def waits_sentence(wait: Waiting) -> str:
    """Until when, or for whom, an operation waits."""
    if wait.until is None:
        return f"waits for a person ({wait.halt}); `interlock resume {wait.operation}` once that is seen to"
    return f"waits until {wait.until.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S UTC')} ({wait.halt})"


def _further(retry: Retry) -> list[tuple[str, str]]:
    """Whether it may have another attempt, by what, and until when."""
    # Where nothing is permitted the end of the key's time would read as if it ended that.
    until = ""
    if retry.until is not None and retry.permits is not Permits.NOTHING:
        until = f" Until {retry.until.isoformat(sep=' ', timespec='seconds')}."
    return [("another attempt", f"{retry.permits.value}: {retry.sentence}{until}")]


def _dispatch(operation: Operation) -> str:
    """Never without what is known to have crossed the wire (A1)."""
    state = operation.state
    return f"{state.dispatch.value} ({state.transmission.value if state.transmission else 'no attempt'})"


def _age(operation: Operation) -> str:
    """Since the dispatch was started, else since it was proposed."""
    since = operation.attempt.claimed_at if operation.attempt else operation.created_at
    minutes = int((datetime.now(UTC) - since).total_seconds() // 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} d"


def _event(event: EventRecord) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "at": event.at.isoformat(),
        "by": str(event.actor),
        "kind": event.kind,
        "why": event.why,
        "evidence": list(event.evidence),
        "previous": event.previous,
        "hash": event.hash,
    }

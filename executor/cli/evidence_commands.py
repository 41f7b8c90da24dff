"""`interlock evidence`: what is kept of an operation, and whether it is still what was signed. Opens no browser, needs
no network, and mends nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from executor.cli.surroundings import AsJson, OperationId, cell, out, print_json, settings
from executor.errors import BadInput, Exit

if TYPE_CHECKING:
    from executor.evidence_check import Finding, Kept, Whole
    from executor.ledger.sql import SqlLedger
    from executor.settings import Settings

app = typer.Typer(help="What is kept of an operation, and whether it is still what was signed.", rich_markup_mode=None)


@app.command("verify", short_help="Is what was kept still what was signed? Works offline.")
def verify(
    operation: Annotated[
        str | None, typer.Argument(metavar="OP", help="An operation's id, or the beginning of one.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every operation, the whole log of receipts and the whole ledger.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check receipt, signature, log, manifest, every item of the evidence, and the record, offline and without mending
    anything. Ends with 0 when all that was signed is unaltered, with 60 when something is altered or missing."""
    from executor.evidence_check import NOT_CHECKED

    if (operation is None) is not everything:
        raise BadInput("Name an operation to verify, or give --all.")
    with _kept() as (kept, known):
        named = sorted({*known, *kept.named()})
        if operation is None:
            whole: Whole | None = kept.check_whole(known)
            receipts = kept.named()
            found = [kept.check(one) for one in named if one in receipts]
        else:
            whole = None
            one = _one(operation, named)
            if one not in kept.named():
                raise BadInput(f"{one} has no receipt: nothing of it was signed, so there is nothing to verify.")
            found = [kept.check(one)]
    sound = not any(one.flaws for one in found) and not (whole and whole.flaws)
    if as_json:
        print_json(
            {
                "sound": sound,
                "operations": [_plain(one) for one in found],
                "whole": None if whole is None else _plain_whole(whole),
                "never_checked": list(NOT_CHECKED),
            }
        )
    else:
        _tell(found, whole, sound=sound)
    if not sound:
        raise typer.Exit(Exit.ALTERED)


@app.command("list", short_help="List what is kept of an operation.")
def list_items(operation: OperationId, as_json: AsJson = False) -> None:
    """List every item that the manifests of an operation name, with its hash. Nothing is verified."""
    from evidence.manifest import load_manifest

    with _kept() as (kept, known):
        one = _one(operation, sorted({*known, *kept.named()}))
    folders = sorted(place.parent for place in (kept.evidence / "operations" / one).glob("*/manifest.json"))
    items: list[dict[str, Any]] = []
    for folder in folders:
        manifest = load_manifest(folder)
        of = [(entry.point.value, entry.label, item) for entry in manifest.entries for item in entry.items]
        if manifest.wire_log is not None:
            of.append(("run", "", manifest.wire_log))
        items += [
            {
                "run": folder.name,
                "point": point,
                "label": label,
                "kind": item.kind.value,
                "sha256": item.sha256,
                "size": item.size,
                "media_type": item.media_type,
                "masked": len(item.masked),
            }
            for point, label, item in of
        ]
    if as_json:
        print_json({"operation": one, "items": items})
        return
    if not items:
        out().print(f"Nothing is kept of {one}.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("point", "kind", "bytes", "sha256"):
        table.add_column(heading, no_wrap=heading != "sha256", overflow="fold")
    for item in items:
        point = f"{item['point']} {item['label']}".strip()
        table.add_row(*map(cell, (point, item["kind"], item["size"], item["sha256"])))
    out().print(table)


@contextmanager
def _kept() -> Iterator[tuple[Kept, Sequence[str]]]:
    """What is kept, with the ids of the ledger's operations."""
    from executor.evidence_check import Kept
    from executor.one_shot.vouching import signing_keys

    own = settings()
    ledger = _ledger(own)
    try:
        kept = Kept(own.home, own.receipts_folder, own.evidence_folder, signing_keys(own).known(), ledger)
        yield kept, [one.id for one in ledger.operations(limit=_ALL)] if ledger is not None else []
    finally:
        if ledger is not None:
            ledger.close_connections()


def _ledger(own: Settings) -> SqlLedger | None:
    """None where there is no file: opening would make one."""
    from executor.ledger.sql import open_ledger

    if own.database_url is None and not (own.home / "ledger.sqlite").exists():
        return None
    return open_ledger(own.ledger_url)


_ALL = 2**31 - 1


def _one(beginning: str, ids: Sequence[str]) -> str:
    found = [one for one in ids if one == beginning] or [
        one for one in ids if len(beginning) >= 8 and one.startswith(beginning)
    ]
    if len(found) != 1:
        raise BadInput(
            f"{len(found) or 'No'} operation{'s have' if len(found) > 1 else ' has'} an id that begins with "
            f"{beginning!r}; `interlock list` shows them."
        )
    return found[0]


def _tell(found: Sequence[Finding], whole: Whole | None, *, sound: bool) -> None:
    from executor.evidence_check import NOT_CHECKED

    console = out()
    for one in found:
        console.print(
            cell(f"{one.operation}: {'ALTERED OR MISSING' if one.flaws else 'sound'}", "bold"), soft_wrap=True
        )
        _lines(one.flaws, one.checked, one.not_checked)
    if whole is not None:
        console.print(cell(f"The whole: {'ALTERED OR MISSING' if whole.flaws else 'sound'}", "bold"), soft_wrap=True)
        _lines(whole.flaws, whole.checked, whole.not_checked)
        if whole.without_receipt:
            console.print(f"  {whole.without_receipt} operations have no receipt, because nothing was run.")
    console.print("Never checked here:", style="dim")
    for line in NOT_CHECKED:
        console.print(cell(f"  {line}", "dim"), soft_wrap=True)
    if not sound:
        console.print("Keep everything as it is, and compare it with a backup.", style="bold")


def _lines(flaws: Sequence[str], checked: Sequence[str], not_checked: Sequence[str]) -> None:
    for mark, style, lines in (
        ("✗", "red", flaws),
        ("✓", "green", checked),
        ("-", "yellow", [f"not checked: {line}" for line in not_checked]),
    ):
        for line in lines:
            out().print(cell(f"  {mark} {line}", style), soft_wrap=True)


def _plain(found: Finding) -> dict[str, Any]:
    return {
        "operation": found.operation,
        "sound": not found.flaws,
        "flaws": found.flaws,
        "checked": found.checked,
        "not_checked": found.not_checked,
        "later_events": found.later_events,
        "signed_by": list(found.signed_by),
    }


def _plain_whole(whole: Whole) -> dict[str, Any]:
    return {
        "sound": not whole.flaws,
        "flaws": list(whole.flaws),
        "checked": list(whole.checked),
        "not_checked": list(whole.not_checked),
        "operations_without_receipt": whole.without_receipt,
    }

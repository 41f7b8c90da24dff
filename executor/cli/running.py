"""`interlock run`: one operation, once, with its steps shown and its receipt at the end."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from executor.cli.steps_shown import StepsShown
from executor.cli.surroundings import AsJson, OperationId, actor, err, executor, out, print_json, run

if TYPE_CHECKING:
    from executor.service import Ended


def run_operation(
    operation: OperationId,
    headed: Annotated[bool, typer.Option("--headed", help="Show the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run one approved operation, once. A second run prints the stored receipt and submits nothing, unless the site
    honours the operation's key and its receipt says that it may run again."""
    with ExitStack() as stack:
        shown = None if as_json else stack.enter_context(StepsShown(err()))

        async def work() -> Ended:
            async with executor(shown.hear if shown else None) as service:
                try:
                    return await service.run(operation, by=actor(), headed=True if headed else None)
                except asyncio.CancelledError:
                    # Stopped by a signal, which the run has taken in its own time: its end is in the record.
                    return await service.ended(operation)

        ended = run(work())
    if as_json:
        print_json(as_plain(ended))
    else:
        tell(ended)
    raise typer.Exit(int(ended.exit))


def as_plain(ended: Ended) -> dict[str, Any]:
    """A run's end as JSON."""
    return {
        "operation": ended.operation.id,
        "exit": int(ended.exit),
        "refused": ended.refused.reason.value if ended.refused is not None else None,
        "receipt": ended.receipt.model_dump(mode="json"),
        "receipt_paths": {"json": str(ended.receipt_paths.json), "text": str(ended.receipt_paths.text)},
        "receipt_problem": ended.receipt_problem or None,
    }


def tell(ended: Ended) -> None:
    """What a person needs to know: a few lines where all went well, the whole receipt where not."""
    from executor.errors import Exit
    from executor.receipts import render_text

    if ended.exit is Exit.SUCCEEDED:
        console, receipt = out(), ended.receipt
        console.print(receipt.verdict, markup=False)
        if receipt.observed.item is not None:
            console.print(f"Item {receipt.observed.item}  {receipt.observed.item_url or ''}".rstrip(), markup=False)
    else:
        sys.stdout.write(render_text(ended.receipt))
        sys.stdout.write("\n")
        if ended.exit is Exit.REFUSED and ended.receipt.ids.attempt is not None:
            sys.stdout.write("This run was refused and submitted nothing; above is the receipt as it stands.\n")
            if ended.refused is not None:
                sys.stdout.write(f"{ended.refused.sentence}\n")
    if ended.receipt_problem:
        err().print(f"{ended.receipt_problem} `interlock receipt {ended.operation.id}` shows it.", markup=False)
        return
    sys.stdout.write(f"Receipt: {ended.receipt_paths.text}\n         {ended.receipt_paths.json}\n")

"""`interlock doctor`: is this machine fit to run?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from executor.cli.surroundings import AsJson, cell, out, print_json, run, settings
from executor.errors import Exit

_MARKS = {"good": ("✓", "green"), "note": ("!", "yellow"), "missing": ("✗", "bold red")}


def doctor(
    site: Annotated[
        str | None,
        typer.Argument(metavar="SITE", help="Look at a site too: an address at it, such as its login page."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Start no browser, read no history.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check browser, ledger, disk, folders, packages, flows and clock; with SITE also how that site takes to the gate:
    one page of it is read, twice. Exit 70 when a run would lack something."""
    from executor.doctor import Fitness, examine

    checks = run(examine(settings(), quick=quick))
    if site is not None:
        from executor.doctor_site import examine_site

        checks += run(examine_site(settings(), site))
    fit = all(check.fitness is not Fitness.MISSING for check in checks)
    if as_json:
        print_json(
            {
                "fit": fit,
                "checks": [{"name": one.name, "fitness": one.fitness.value, "says": one.says} for one in checks],
            }
        )
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for one in checks:
            mark, style = _MARKS[one.fitness.value]
            table.add_row(cell(mark, style), one.name, cell(one.says))
        out().print(table)
        out().print("Ready." if fit else "Something is missing; see the lines marked ✗.")
    if not fit:
        raise typer.Exit(Exit.DEFECT)

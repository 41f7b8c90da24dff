"""`interlock browser install`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from executor.cli.surroundings import AsJson, out, print_json, settings
from executor.errors import Exit

app = typer.Typer(help="The browser that runs use.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """The browser that runs use."""


@app.command("install")
def install(as_json: AsJson = False) -> None:
    """See to it that there is a Chromium or Chrome, and say what was done."""
    from executor.browser.finding import find_browser, install_browser

    configured = settings().browser
    if configured is not None:
        found = find_browser(configured)
        said: dict[str, Any] = {"browser": _described(found), "steps": [], "next_command": None}
        text = f"The setting names {found.product} {found.version} at {found.path}; nothing was installed."
        if as_json:
            print_json(said)
        else:
            out().print(text, markup=False)
        return
    report = install_browser()
    if as_json:
        print_json(
            {
                "browser": _described(report.browser) if report.browser else None,
                "steps": [asdict(step) for step in report.steps],
                "next_command": report.next_command,
            }
        )
    else:
        for step in report.steps:
            out().print(step.sentence, markup=False)
        if report.next_command is not None:
            out().print(f"Run this: {report.next_command}", markup=False)
    if report.browser is None:
        raise typer.Exit(Exit.DEFECT)


def _described(browser: Any) -> dict[str, str]:
    return {
        "path": str(browser.path),
        "product": browser.product,
        "version": browser.version,
        "source": str(browser.source),
    }

"""`interlock browser`: install one here, or print how one elsewhere must be started."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from executor.browser.engines import Engine
from executor.cli.surroundings import AsJson, out, print_json, settings
from executor.errors import Exit

app = typer.Typer(help="The browser that runs use.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """The browser that runs use."""


@app.command("install")
def install(
    engine: Annotated[
        Engine, typer.Option(help="Whose browser; the others are Playwright's builds.")
    ] = Engine.CHROMIUM,
    as_json: AsJson = False,
) -> None:
    """See to it that there is a Chromium or Chrome, or one of another engine, and say what was done."""
    from executor.browser.finding import find_engine, install_browser

    configured = settings().browser
    if configured is not None:
        found = find_engine(engine, configured)
        said: dict[str, Any] = {"browser": _described(found), "steps": [], "next_command": None}
        text = f"The setting names {found.product} {found.version} at {found.path}; nothing was installed."
        if as_json:
            print_json(said)
        else:
            out().print(text, markup=False)
        return
    report = install_browser(engine)
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


@app.command("arguments")
def arguments(
    port: Annotated[int, typer.Option(help="Its control port, on its own loopback.", min=1024, max=65535)] = 9222,
    as_json: AsJson = False,
) -> None:
    """Print the command that starts a remote browser as it must be started. Makes the key that it is told to believe,
    where there is none yet."""
    from executor.browser.arguments import command_line, remote_arguments
    from executor.browser.remote import Remote, kept_authority

    own = settings()
    remote = Remote.of(own)
    authority = kept_authority(own.key_folder)
    given = remote_arguments(spki=authority.spki, gates_at=remote.gates_at if remote else "127.0.0.1")
    if as_json:
        print_json({"arguments": given, "command": command_line(given, port=port)})
    else:
        out().print(command_line(given, port=port), markup=False, soft_wrap=True)


def _described(browser: Any) -> dict[str, str]:
    return {
        "path": str(browser.path),
        "product": browser.product,
        "version": browser.version,
        "source": str(browser.source),
    }

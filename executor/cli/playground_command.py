"""`interlock playground`: the local publishing site, until Ctrl-C."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from executor.cli.surroundings import AsJson, out, print_json


def playground(
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder for the site's record; a temporary one without it.")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Plain HTTP port; 0 for any free one.")] = 0,
    tls_port: Annotated[int, typer.Option("--tls-port", help="HTTPS port; 0 for any free one.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run the local publishing site to practise on, until Ctrl-C."""
    from playground.app import ACCOUNTS, PASSWORD
    from playground.process import Playground

    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-playground-")))
        site = stack.enter_context(Playground.start(folder, port=port, tls_port=tls_port))
        if as_json:
            print_json({"plain": site.plain, "tls": site.tls, "ca": str(site.ca), "record": str(site.truth.path)})
        else:
            console = out()
            console.print(f"The playground is at {site.plain} and {site.tls}", markup=False)
            console.print(f"Accounts: {', '.join(ACCOUNTS)}. Password: {PASSWORD}.", markup=False)
            console.print(f"Certificate authority: {site.ca}", markup=False, soft_wrap=True)
            console.print(f"Its own record: {site.truth.path}", markup=False, soft_wrap=True)
            console.print("Ctrl-C ends it.")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})

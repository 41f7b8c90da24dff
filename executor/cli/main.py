"""The command `interlock`: reads the arguments, calls the Python API, prints what it says. No rule is decided here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from executor.cli import (
    browser,
    demo,
    doctor,
    evidence_commands,
    flow_commands,
    intents,
    keys,
    playground_command,
    reading,
    running,
    settings_command,
    stops,
    worker_command,
)
from executor.cli.failures import Failure, explain
from executor.cli.surroundings import use_home
from executor.errors import Exit

app = typer.Typer(
    name="interlock",
    help="Perform one consequential action in a web page at most once, and be able to prove what was done.",
    epilog="Exit codes: 0 succeeded, 10 accepted, 20 unknown, 30 rejected, 40 refused, 50 proven not sent, "
    "60 altered or missing (`evidence verify`), 70 defect or surroundings, 2 usage.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"interlock {version('interlock')}")
        raise typer.Exit


@app.callback()
def _whole(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="PATH", help="Where ledger, evidence and receipts live.")
    ] = None,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    if home is not None:
        use_home(home)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("demo", short_help="Publish once, lose an answer, refuse a difference.")(demo.demo)
app.command("doctor", short_help="Is this machine fit to run?")(doctor.doctor)
app.add_typer(browser.app, name="browser")
app.command("playground", short_help="Run a local site to practise on.")(playground_command.playground)
app.add_typer(flow_commands.app, name="flows")
app.command("login")(flow_commands.login)
app.command("propose")(intents.propose)
app.command("approve")(intents.approve)
app.command("revoke")(intents.revoke)
app.command("run")(running.run_operation)
app.command("worker", short_help="Run what is authorized and due, until told to drain.")(worker_command.worker)
app.command("resume", short_help="End the wait of an operation whose run halted.")(worker_command.resume)
app.command("stop", short_help="Let nothing be submitted any more; list and lift stops.")(stops.stop)
app.command("list")(reading.list_operations)
app.command("show", short_help="Show one operation and all its events.")(reading.show)
app.command("receipt", short_help="Print an operation's receipt.")(reading.receipt)
app.add_typer(evidence_commands.app, name="evidence")
app.add_typer(keys.app, name="keys")
app.command("settings", short_help="Show every setting and where it came from.")(settings_command.settings_in_effect)


# Click's, or that of the copy of Click that newer Typers carry; neither Typer exports it under a name of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Ends the process with the command's exit code."""
    sys.exit(execute(sys.argv[1:] if arguments is None else list(arguments)))


def execute(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Prints one sentence for every error; no traceback, unless
    `INTERLOCK_DEBUG` is set."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args=list(arguments), prog_name="interlock", standalone_mode=False)
    except _UsageError as error:
        return _failed(_misused(error), arguments)
    except (typer.Abort, KeyboardInterrupt):
        return _failed(Failure("Stopped by hand.", 130), arguments)
    except BrokenPipeError:
        # The reader of our output has gone away; what was asked for is done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # every error becomes a sentence and an exit code; this is the last place
        if os.environ.get("INTERLOCK_DEBUG"):
            raise
        return _failed(explain(error), arguments)
    return code if isinstance(code, int) else 0


def _misused(error: Any) -> Failure:
    said = str(error.format_message()).strip()
    where = f" See `{error.ctx.command_path} --help`." if error.ctx is not None else ""
    return Failure(f"{said}{'' if said.endswith(('.', '?')) else '.'}{where}", Exit.USAGE)


def _failed(failure: Failure, arguments: Sequence[str]) -> int:
    if "--json" in arguments:
        sys.stdout.write(json.dumps({"error": failure.sentence, "exit": int(failure.exit)}, ensure_ascii=False) + "\n")
    sys.stderr.write(f"interlock: {failure.sentence}\n")
    return int(failure.exit)

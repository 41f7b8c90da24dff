"""`interlock flows list|show` and `interlock login`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from executor.cli.surroundings import AsJson, cell, executor, out, person, print_json, run
from executor.errors import BadInput

if TYPE_CHECKING:
    from flows.flow import Credentials

app = typer.Typer(help="The flows that can be run.", rich_markup_mode=None)


@app.command("list", short_help="Show every flow that can be run.")
def list_flows(as_json: AsJson = False) -> None:
    """Show every registered flow, broken ones with what is wrong with them."""
    from flows.registry import Registry, RegistryError

    registry = Registry.discover()
    rows: list[dict[str, str | None]] = []
    for name in registry.names():
        try:
            flow = registry.get(name)
        except RegistryError as error:
            rows.append({"name": name, "version": None, "action": None, "summary": None, "problem": str(error)})
        else:
            rows.append(
                {
                    "name": name,
                    "version": flow.version,
                    "action": flow.action,
                    "summary": flow.summary,
                    "problem": None,
                }
            )
    if as_json:
        print_json(rows)
        return
    table = Table("flow", "version", "action", "what it does", box=None, pad_edge=False)
    for row in rows:
        says = row["summary"] or f"broken: {row['problem']}"
        table.add_row(*(cell(text or "") for text in (row["name"], row["version"], row["action"], says)))
    out().print(table)


@app.command("show", short_help="Show what a flow may do, and what its site promises.")
def show_flow(
    flow: Annotated[str, typer.Argument(help="A registered name, or path/to/file.py:Class.")], as_json: AsJson = False
) -> None:
    """Show what a flow may do and what its site promises: writes, views, contract, undo."""
    from flows.flow import describe
    from flows.registry import Registry

    described = describe(type(Registry.discover().get(flow)))
    if as_json:
        print_json(described)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(described):
        table.add_row(name, cell(value))
    out().print(table)


def _rows(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A nested value as lines of name and text."""
    rows: list[tuple[str, str]] = []
    for name, inner in value.items():
        label = f"{prefix}{name}".replace("_", " ")
        if name == "payload":
            rows += [(f"payload {field}", _field(schema)) for field, schema in inner.get("properties", {}).items()]
        elif isinstance(inner, dict):
            rows += _rows(inner, f"{name} ")
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            rows += [(label, ", ".join(f"{key}: {_text(one[key])}" for key in one)) for one in inner]
        elif name == "notes":
            rows += [(label, note) for note in inner]
        else:
            rows.append((label, _text(inner)))
    return rows


def _field(schema: dict[str, Any]) -> str:
    if schema.get("$ref", "").endswith("/PayloadFile"):
        return 'a file: {"path": "NAME"}, taken from where the payload is'
    return ", ".join(f"{key}: {_text(schema[key])}" for key in ("type", "description", "maxLength") if key in schema)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def login(
    flow: Annotated[str, typer.Argument(help="A registered flow, or path/to/file.py:Class, with a login by form.")],
    site: Annotated[str, typer.Option("--site", help="The destination, as in propose.")],
    account: Annotated[str, typer.Option("--account", help="The account that the site will show.")],
    as_json: AsJson = False,
) -> None:
    """Sign in and keep the session, sealed. Takes INTERLOCK_USER and INTERLOCK_PASSWORD, or asks."""
    by = person("sign in")
    credentials = _credentials(account)

    async def sign_in() -> None:
        async with executor() as service:
            await service.login(flow=flow, destination=site, account=account, credentials=credentials, by=by)

    run(sign_in())
    if as_json:
        print_json({"flow": flow, "site": site, "account": account, "signed_in": True})
    else:
        console = out()
        console.print(f"Signed in to {site} as {credentials.user}; the session is kept sealed.", markup=False)
        if credentials.user != account:
            console.print(f"It is kept for {account}: a run halts if the pages show another name.", markup=False)


def _credentials(account: str) -> Credentials:
    from flows.flow import Credentials

    user = os.environ.get("INTERLOCK_USER") or account
    password = os.environ.get("INTERLOCK_PASSWORD")
    if not password:
        try:
            password = str(typer.prompt(f"Password of {user}", hide_input=True, err=True))
        except typer.Abort as error:
            raise BadInput("There is no password: set INTERLOCK_PASSWORD, or answer the question.") from error
    return Credentials(user=user, password=password)

"""`interlock keys`: the keys by which this installation signs, and those of others that it believes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from executor.cli.surroundings import AsJson, cell, out, person, print_json, settings
from executor.errors import BadInput

if TYPE_CHECKING:
    from evidence.signing_keys import Entry, SigningKeys

app = typer.Typer(help="The keys that sign receipts and evidence.", rich_markup_mode=None)

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, or the beginning of one.")]


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """Show every key that is known, the oldest first."""
    entries = _keys().entries()
    if as_json:
        print_json([_plain(one) for one in entries])
        return
    if not entries:
        out().print("There is no key yet; the first receipt makes one, and so does `interlock keys create`.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("Key", "Whose", "Since", "State"):
        table.add_column(name, no_wrap=name != "Whose")
    for one in entries:
        state = (
            "believed" if not one.own else "signs" if one.retired_at is None else f"retired {one.retired_at:%Y-%m-%d}"
        )
        table.add_row(one.key_id[:16], cell("ours" if one.own else one.name), f"{one.added_at:%Y-%m-%d}", state)
    out().print(table)


@app.command("create")
def create(as_json: AsJson = False) -> None:
    """Make the key that signs, where there is none yet."""
    _tell(_keys().signer().key_id, as_json)


@app.command("rotate")
def rotate(as_json: AsJson = False) -> None:
    """Sign with a new key from now on. The private part of the one before is deleted; its public part stays known."""
    person("replace the key that signs")
    _tell(_keys().rotate().key_id, as_json)


@app.command("export")
def export(key: KeyId) -> None:
    """Print a public key (PEM), for those who are to check what it signed."""
    out().print(_keys().entry(key).pem.decode().strip(), markup=False, highlight=False, soft_wrap=True)


@app.command("believe")
def believe(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A public key (PEM).")],
    name: Annotated[str, typer.Option("--name", help="Whose it is.")],
    as_json: AsJson = False,
) -> None:
    """Count the signatures of somebody else's key."""
    person("say whose signatures count")
    try:
        pem = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}.") from error
    _tell(_keys().believe(pem, name=name).key_id, as_json)


def _keys() -> SigningKeys:
    from executor.one_shot.vouching import signing_keys

    return signing_keys(settings())


def _tell(key_id: str, as_json: bool) -> None:
    entry = _keys().entry(key_id)
    if as_json:
        print_json(_plain(entry))
    else:
        out().print(entry.key_id, markup=False, highlight=False, soft_wrap=True)


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "key_id": entry.key_id,
        "own": entry.own,
        "name": entry.name,
        "added_at": entry.added_at.isoformat(),
        "retired_at": entry.retired_at.isoformat() if entry.retired_at else None,
        "public_key": entry.pem.decode(),
    }

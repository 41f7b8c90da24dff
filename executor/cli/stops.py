"""`interlock stop`: set, lift and list stops."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any

import typer

from executor.cli.surroundings import AsJson, actor, cell, executor, out, person, print_json, run
from executor.errors import BadInput

if TYPE_CHECKING:
    from executor.model.operation import Stop


def stop(
    flow: Annotated[str | None, typer.Option("--flow", help="Stop this flow, everywhere.")] = None,
    site: Annotated[str | None, typer.Option("--site", help="With --account: stop that account there.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="With --site: stop this account.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop everything.")] = False,
    lift: Annotated[str | None, typer.Option("--lift", metavar="ID", help="Lift a stop.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the stops in force.")] = False,
    why: Annotated[str, typer.Option("--why", help="The reason, for the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Let nothing be submitted any more: of a flow, as an account, or at all. Checked at claim and at release."""
    target = flow is not None or site is not None or account is not None
    if sum((target, everything, lift is not None, listing)) != 1:
        raise BadInput("Say one thing: --flow and/or --site with --account, --all, --lift ID, or --list.")
    if listing:
        found = run(_stops())
    elif lift is not None:
        found = [run(_lift(lift, why))]
    else:
        found = [run(_stop(flow, site, account, why))]
    if as_json:
        shown = [_plain(one) for one in found]
        print_json(shown if listing else shown[0])
    elif not found:
        out().print("No stop is in force.")
    elif lift is not None:
        out().print(f"Lifted {found[0].id}.", markup=False)
    else:
        for one in found:
            _tell(one)


async def _stops() -> list[Stop]:
    async with executor() as service:
        return list(await service.stops())


async def _lift(stop_id: str, why: str) -> Stop:
    by = person("lift a stop")
    async with executor() as service:
        return await service.lift(stop_id, by=by, why=why)


async def _stop(flow: str | None, site: str | None, account: str | None, why: str) -> Stop:
    async with executor() as service:
        return await service.stop(by=actor(), why=why, flow=flow, destination=site, account=account)


def _tell(one: Stop) -> None:
    console = out()
    console.print(cell(f"{one.id}  flow {one.flow or 'every'}, account {_account(one)}"), soft_wrap=True)
    since = one.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    why = f": {one.why}" if one.why else ""
    console.print(cell(f"  since {since}, by {one.by}{why}", "dim"), soft_wrap=True)


def _account(one: Stop) -> str:
    if one.account_key is None:
        return "every"
    site, _, account = one.account_key.partition("|")
    return f"{account} at {site}"


def _plain(one: Stop) -> dict[str, Any]:
    return {
        "id": one.id,
        "flow": one.flow,
        "account_key": one.account_key,
        "by": str(one.by),
        "at": one.at.isoformat(),
        "why": one.why,
        "lifted_at": one.lifted_at.isoformat() if one.lifted_at else None,
    }

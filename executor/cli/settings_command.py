"""`interlock settings`: what is in effect, and where it came from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from executor.cli.surroundings import AsJson, cell, out, print_json, settings
from executor.errors import BadInput


def settings_in_effect(
    flow: Annotated[str | None, typer.Option("--flow", metavar="FLOW", help="As a run of this flow has them.")] = None,
    site: Annotated[str | None, typer.Option("--site", metavar="URL", help="As a run at this site has them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting with where its value came from. What is secret in a value is masked."""
    from executor.settings_shown import in_effect
    from flows.registry import Registry
    from flows.wire import origin_of_url

    if site is not None:
        try:
            origin_of_url(site)
        except ValueError as error:
            raise BadInput(f"{error}.") from error
    name = Registry.discover().canonical(flow) if flow is not None else None
    found = in_effect(settings(), flow=name, site=site)
    if as_json:
        print_json({one.name: {"value": one.value, "from": one.origin.value} for one in found})
        return
    width = max(len(one.name) for one in found)
    for one in found:
        line = cell(f"{one.name:<{width}}  {one.origin.value:<12}", "" if one.origin.value != "default" else "dim")
        line.append_text(cell(f"  {_text(one.value)}"))
        out().print(line, soft_wrap=True)


def _text(value: Any) -> str:
    match value:
        case None | []:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(_text, value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)

"""The settings in effect, each with where it came from: default, file, environment, or the table of a flow or a site.

For people who ask why a run did as it did. What a value may hide (a password in an address) is masked; keys are files
and are only named.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from executor.settings import TABLES, RunSettings, Settings, settings_file, variables

MASK = "…"
_USER_INFO = re.compile(r"(?<=//)([^/@\s:]*):[^/@\s]*@")
_QUERY_SECRET = re.compile(r"(?i)([?&;](?:password|passwd|pwd|token|secret|key|sslpassword)=)[^&;\s]*")


class Origin(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLOW = "flow table"
    SITE = "site table"


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting: its value, without secrets, as what JSON and TOML can hold."""

    name: str
    value: Any
    origin: Origin


def in_effect(settings: Settings, *, flow: str | None = None, site: str | None = None) -> tuple[Shown, ...]:
    """Every setting, for a run of this flow at this site where they are given. `settings` must have been read from
    file and environment, as `Settings()` does. Raises ValueError for a site that is no address."""
    effective = settings.for_run(flow or "", site or "")
    origins = _read_from()
    tables = zip((Origin.FLOW, Origin.SITE), settings.tables(flow or "", site or ""), strict=False)
    for origin, (_, table) in tables:
        origins |= dict.fromkeys(table, origin)
    values = effective.model_dump(mode="json")
    names = [
        *RunSettings.model_fields,
        *(name for name in Settings.model_fields if name not in RunSettings.model_fields),
    ]
    return tuple(
        Shown(name, masked(values[name]), origins.get(name, Origin.DEFAULT)) for name in names if name not in TABLES
    )


def _read_from() -> dict[str, Origin]:
    found: dict[str, Origin] = {}
    if settings_file().is_file():
        found |= dict.fromkeys(tomllib.loads(settings_file().read_text(encoding="utf-8")), Origin.FILE)
    by_variable: Mapping[str, str] = variables()
    return found | {
        by_variable[given.upper()]: Origin.ENVIRONMENT for given in os.environ if given.upper() in by_variable
    }


def masked(value: Any) -> Any:
    """A value with the password of an address, and what a query calls a secret, cut out."""
    if isinstance(value, str):
        return _QUERY_SECRET.sub(rf"\1{MASK}", _USER_INFO.sub(rf"\1:{MASK}@", value))
    if isinstance(value, list):
        return [masked(one) for one in value]
    return value

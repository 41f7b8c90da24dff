"""Is this machine fit to run? Checks with one sentence each. They submit nothing, and change nothing but to open a
ledger that is there already and, unless told to be quick, start a browser on no page.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from evidence.store import why_unfit
from executor.browser.engines import Engine
from executor.browser.finding import BrowserMissing, find_engine
from executor.browser.remote import Remote
from executor.browser.sessions import BrowserHost
from executor.errors import BadInput, InterlockError
from executor.ledger.anchor import Anchor
from executor.ledger.ledger import LedgerError
from executor.ledger.sql import SqlLedger, open_ledger
from executor.settings import Settings
from flows.registry import Registry, RegistryError

PACKAGES = ("executor", "flows", "evidence", "playground")
DISTRIBUTION = "interlock"
CLOCK_TOLERANCE_S = 5.0


class Fitness(StrEnum):
    GOOD = "good"
    NOTE = "note"
    """Worth knowing; nothing is missing."""
    MISSING = "missing"
    """Something that a run needs."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    fitness: Fitness
    says: str


async def examine(settings: Settings, *, quick: bool) -> tuple[Check, ...]:
    """All checks in the order in which a person should read them. `quick` starts no browser and reads no history."""
    checks = [await asyncio.to_thread(_browser, settings)]
    if not quick and checks[0].fitness is not Fitness.MISSING:
        checks.append(await _launch(settings))
    checks += await asyncio.to_thread(_ledger, settings, quick)
    checks += [_disk(settings), *_folders(settings), *_packages(), *_flows(settings), _submits()]
    return tuple(checks)


def _browser(settings: Settings) -> Check:
    try:
        remote = Remote.of(settings)
        if remote is not None:
            return Check("browser", Fitness.GOOD, f"a remote one is set, at {remote.name} ({remote.kind.value})")
        found = find_engine(settings.browser_engine, settings.browser)
    except (BrowserMissing, BadInput) as error:
        return Check("browser", Fitness.MISSING, str(error))
    says = f"{found.product} {found.version} at {found.path} ({found.source})"
    if settings.browser_engine is not Engine.CHROMIUM:
        return Check(
            "browser",
            Fitness.NOTE,
            f"{says}; less proven than Chromium, on which it was measured that nothing goes around the gate",
        )
    if found.snap:
        return Check("browser", Fitness.NOTE, f"{says}; a snap does not see every folder, prefer another one")
    return Check("browser", Fitness.GOOD, says)


async def _launch(settings: Settings) -> Check:
    try:
        async with BrowserHost.of(settings) as host:
            return Check("launch", Fitness.GOOD, f"it starts, and calls itself {host.version}")
    except (InterlockError, BrowserMissing) as error:
        return Check("launch", Fitness.MISSING, str(error))


def _ledger(settings: Settings, quick: bool) -> list[Check]:
    file = settings.home / "ledger.sqlite"
    if settings.database_url is None and not file.exists():
        return [Check("ledger", Fitness.GOOD, f"{file} will be made at the first use")]
    where = "the database of INTERLOCK_DATABASE_URL" if settings.database_url is not None else str(file)
    try:
        ledger = open_ledger(settings.ledger_url, anchor=Anchor(settings.evidence_folder / "anchor.json"))
    except LedgerError as error:
        return [Check("ledger", Fitness.MISSING, str(error))]
    try:
        identity = ledger.identity()
        checks = [
            Check("ledger", Fitness.GOOD, f"{where}: schema {identity.schema}, {identity.events} events"),
            _durable(ledger.durability_problems()),
            _anchor(ledger),
            _held(ledger),
            _clock(ledger.now()),
        ]
        if not quick:
            checks.append(_history(ledger.verify_all().flaws))
        return checks
    except LedgerError as error:
        return [Check("ledger", Fitness.MISSING, str(error))]
    finally:
        ledger.close_connections()


def _durable(problems: tuple[str, ...]) -> Check:
    if problems:
        return Check("durable", Fitness.NOTE, " ".join(problems))
    return Check("durable", Fitness.GOOD, "what the database reports as kept survives a loss of power")


def _anchor(ledger: SqlLedger) -> Check:
    if ledger.behind_anchor():
        return Check(
            "anchor",
            Fitness.MISSING,
            "the ledger is older than its anchor, as after a restored backup: nothing runs until a person accepts it "
            "(see “A ledger restored from a backup” in docs/operating.md)",
        )
    return Check("anchor", Fitness.GOOD, "the ledger holds everything that its anchor has seen")


def _held(ledger: SqlLedger) -> Check:
    """What keeps operations from running until a person has acted."""
    stops = [f"{stop.id} ({stop.why or 'no reason was given'})" for stop in ledger.stops()]
    waiting = [one.operation for one in ledger.waiting() if one.until is None]
    if not stops and not waiting:
        return Check("stops", Fitness.GOOD, "no stop is in force, and nothing waits for a person")
    says = [f"in force: {', '.join(stops[:5])}; see `interlock stop --list`"] if stops else []
    if waiting:
        says.append(f"for a person wait {', '.join(waiting[:5])}{' and others' if len(waiting) > 5 else ''}")
    return Check("stops", Fitness.NOTE, "; ".join(says))


def _history(flaws: tuple[str, ...]) -> Check:
    if flaws:
        return Check("history", Fitness.MISSING, "; ".join(flaws[:3]))
    return Check("history", Fitness.GOOD, "every event fits the hash chain of its operation")


def _clock(now: datetime) -> Check:
    apart = abs((datetime.now(UTC) - now).total_seconds())
    if apart > CLOCK_TOLERANCE_S:
        return Check(
            "clock", Fitness.NOTE, f"the ledger's clock is {apart:.0f} s apart from this machine's; its decides"
        )
    return Check("clock", Fitness.GOOD, f"the ledger's clock says {now.isoformat(sep=' ', timespec='seconds')}")


def _disk(settings: Settings) -> Check:
    place = settings.home
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("disk", Fitness.MISSING, f"{place} cannot be written to; set INTERLOCK_HOME to a folder that can")
    free = shutil.disk_usage(place).free
    if problem := why_unfit(place):
        return Check("disk", Fitness.MISSING, problem)
    says = f"{free // 2**20} MiB are free at {place}, {settings.minimum_free_bytes // 2**20} are needed"
    return Check("disk", Fitness.GOOD if free >= settings.minimum_free_bytes else Fitness.MISSING, says)


def _folders(settings: Settings) -> Iterator[Check]:
    """Data and keys are for their owner alone (C9)."""
    folders = (
        settings.home,
        settings.key_folder,
        settings.evidence_folder,
        settings.receipts_folder,
        settings.identities_folder,
    )
    there = [folder for folder in folders if folder.is_dir()]
    open_to_others = [folder for folder in there if _open_to_others(folder)]
    if settings.home not in open_to_others:  # nobody else gets past it
        open_to_others = [folder for folder in open_to_others if not folder.is_relative_to(settings.home)]
    if open_to_others:
        names = " ".join(map(str, open_to_others))
        yield Check("folders", Fitness.NOTE, f"others on this machine may look in: chmod 700 {names}")
    elif there:
        yield Check("folders", Fitness.GOOD, "data and keys are open to their owner alone")
    if settings.key_folder.resolve().is_relative_to(settings.home.resolve()):
        yield Check("keys", Fitness.NOTE, "the keys lie inside the data: a copy of the data would carry them along")


def _open_to_others(folder: Path) -> bool:
    return bool(stat.S_IMODE(folder.stat().st_mode) & 0o077)


def _packages() -> Iterator[Check]:
    """Whether our import names are ours: `executor` and the like are ordinary words."""
    home = Path(__file__).resolve().parents[1]
    elsewhere = {name: place for name in PACKAGES if (place := _origin(name)) != home / name}
    others = sorted(f"{owner} ({name})" for name, owner in _claims().items())
    if elsewhere:
        places = ", ".join(f"{name} from {place}" for name, place in elsewhere.items())
        yield Check("packages", Fitness.MISSING, f"another distribution comes first: {places}. Uninstall it.")
    elif others:
        yield Check("packages", Fitness.NOTE, f"these ship packages of our names too: {', '.join(others)}")
    else:
        yield Check("packages", Fitness.GOOD, f"{', '.join(PACKAGES)} are this program's")


def _origin(name: str) -> Path | None:
    spec = find_spec(name)
    return Path(spec.origin).resolve().parent if spec is not None and spec.origin is not None else None


def _claims() -> Mapping[str, str]:
    """Our package names that other distributions ship, with one of their owners."""
    claims: dict[str, str] = {}
    for distribution in distributions():
        owner = distribution.metadata["Name"]
        if owner == DISTRIBUTION:
            continue
        for file in distribution.files or ():
            if len(file.parts) > 1 and file.parts[0] in PACKAGES:
                claims[file.parts[0]] = owner
    return claims


def _flows(settings: Settings) -> Iterator[Check]:
    registry = Registry.discover()
    broken: list[str] = []
    reads: dict[str, int] = {}
    for name in registry.names():
        try:
            flow = registry.get(name)
        except RegistryError as error:
            broken.append(str(error))
            continue
        rounds = int(flow.contract.look_before) + (len(settings.verify_delays_s) if flow.contract.look_after else 0)
        reads[name] = len(flow.views()) * settings.reads_per_view * rounds
    if broken:
        yield Check("flows", Fitness.NOTE, " ".join(broken))
    else:
        yield Check("flows", Fitness.GOOD, f"{len(reads)} flows are registered and complete")
    if strange := [name for name in settings.flow if name not in registry.names()]:
        tables = ", ".join(f'[flow."{name}"]' for name in strange)
        yield Check(
            "tables", Fitness.NOTE, f"no registered flow goes by {tables}; that is right for a flow from a file only"
        )
    if reads:
        most = max(reads, key=lambda name: reads[name])
        yield Check(
            "reads",
            Fitness.GOOD,
            f"at most {reads[most]} per run by looking ({most}), beside the composer's own; a worker begins at most "
            f"{1 + settings.halts_per_task} such runs of a task, so {reads[most] * (1 + settings.halts_per_task)}",
        )


def _submits() -> Check:
    return Check("submits", Fitness.GOOD, "at most 1 per attempt, with no retry at any layer")

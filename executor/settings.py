"""Every deadline, window, budget and path in one place (B6). Read from the environment (`INTERLOCK_…`) and from
`settings.toml` in the home folder; the environment wins. The defaults are starting points, each with its reason.

`RunSettings` is what one run goes by: a table `[flow."wordpress"]` or `[site."https://blog.example"]` in the file
overrides any of it for that flow or site, and a site wins over a flow, a flow over the rest. `Settings` adds what
belongs to the program as a whole. A run asks `Settings.for_run` once and uses nothing else.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from executor.browser.engines import EndpointKind, Engine
from executor.errors import BadInput
from flows.wire import origin_of_url

DAY_S = 24 * 3600.0
LONGEST_APPROVAL_S = 366 * DAY_S
LONGEST_ANSWER_BY_A_PERSON_S = 31 * DAY_S
PREFIX = "INTERLOCK_"
FILE = "settings.toml"

NOT_SETTINGS = frozenset(
    {"INTERLOCK_DEBUG", "INTERLOCK_LODGING", "INTERLOCK_PASSWORD", "INTERLOCK_PROPOSER", "INTERLOCK_USER"}
)
"""Variables of ours that are no settings: what the command line reads, and the mark on the processes of a browser.
Every other name with our prefix is a setting, or a mistake that somebody should hear about."""

TABLES = ("flow", "site")
"""The fields that hold tables, in rising order of precedence."""

Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
"""A limit that holds. Nothing means "for ever": the driver takes 0 for no limit at all, and any time that is compared
with "not a number" is never over."""
Delay = Annotated[float, Field(ge=0, le=DAY_S, allow_inf_nan=False)]
_PROXY = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})/?")
_HOSTS = re.compile(
    r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*([/:][0-9]+)?|[0-9a-fA-F:]+(/[0-9]+)?|\[[0-9a-fA-F:]+\](:[0-9]+)?"
)
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""One line of text."""


def default_home() -> Path:
    """Where ledger and evidence live, unless `INTERLOCK_HOME` says otherwise."""
    return Path(platformdirs.user_data_dir("interlock"))


def default_key_folder() -> Path:
    """Keys live apart from the data, so that a copy of the data folder does not carry them (C9)."""
    return Path(platformdirs.user_config_dir("interlock"))


class RunSettings(BaseModel):
    """What one run goes by. Times in seconds, none longer than a day unless a person's answer is waited for."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    trust: tuple[Path, ...] = ()
    """Certificate authorities (PEM files) that are trusted upstream beside the system's: a company's own, a test's."""
    upstream_proxy: str | None = None
    """None: straight, and so is an empty text in a table. A company's proxy, as `http://HOST:PORT` or
    `https://HOST:PORT`; the gate asks it for a tunnel to each site. The variables `HTTPS_PROXY` and `NO_PROXY` are not
    read."""
    upstream_proxy_credentials: str | None = None
    """None: no credentials. Where the proxy's `user:password` is: `env:NAME` for a variable of the environment, or the
    path of a file that its owner alone may read. Never the words themselves."""
    no_proxy: tuple[str, ...] = ()
    """Hosts that are reached without the proxy: `cms.example`, `.intranet.example` (everything below it), `10.0.0.0/8`,
    each with `:PORT` where only that one is meant. This machine's own addresses too only where they are listed."""
    client_certificate: Path | None = None
    """None: none is shown. The certificate (PEM, with its chain) by which the gate says who is calling. Shown to the
    run's own site, and elsewhere only where a table `[site."…"]` names it."""
    client_key: Path | None = None
    """None: in the file of the certificate. Its key (PEM), in a file that its owner alone may read."""
    client_key_password: Path | None = None
    """None: the key has no password. A file that its owner alone may read, with the password in its one line."""
    lease_s: Annotated[Seconds, Field(ge=1)] = 300.0
    """Longer than a slow composer takes; renewed at a third of it. Only a settled attempt frees an account."""
    prepare_s: Seconds = 120.0
    """A heavy editor on a slow line, with room. A read phase: nothing is lost when it runs out."""
    step_s: Seconds = 30.0
    """One navigation or one wait inside prepare and views."""
    gesture_s: Seconds = 10.0
    """A click that the browser has not taken by then is not waited for; whether anything left, the gate knows."""
    effect_window_s: Seconds | None = None
    """None: as the flow's contract says (10). From the gesture to the first sign of the request."""
    answer_s: Seconds | None = None
    """None: as the flow's contract says (60). Publishing with mail or images behind it takes its time."""
    connect_s: Seconds = 10.0
    """Address, connection and TLS of the effect request; a dead host is found out here."""
    write_within_s: Seconds = 5.0
    """From the commit of `released` to the first byte. Far below the lease, so that nobody can have taken over."""
    body_s: Seconds = 300.0
    """For the page to hand over the body of one request. A large upload through a slow gate takes its time; while the
    effect's body arrives, its window stays open."""
    largest_body_bytes: Annotated[int, Field(ge=1)] = 200 * 1024 * 1024
    """The largest request body that the gate takes; a larger one is refused. A film needs more."""
    evidence_s: Seconds = 15.0
    """All captures of one point. Evidence after the submit is bounded and never decides."""
    look_s: Seconds = 60.0
    """One view, from its first page to its answer."""
    verify_delays_s: tuple[Delay, ...] = (0.0, 2.0)
    """When to look after the submit; reads only, the last one after short lags of ordinary listings."""
    reads_per_view: Annotated[int, Field(ge=1)] = 400
    """Documents and background requests that one view may make; pictures, styles and scripts are not counted. A heavy
    admin page takes about 150."""
    approval_s: Annotated[float, Field(gt=0, le=LONGEST_APPROVAL_S, allow_inf_nan=False)] = DAY_S
    """How long an approval is good, where the person does not say."""
    circuit_breaker: bool = True
    """After an unknown, stop the flow as that account until a person has looked (C10). Off only where every unknown is
    seen at once by somebody: the next item may meet the same trouble."""
    owner: Name = "operator"
    """Who owns what stays unresolved, as the receipt names them: a person, a team, an address."""
    queue: Name | None = None
    """None: no queue is named. Where the owner looks for what is unresolved, as the receipt names it."""
    respond_by_s: Annotated[float, Field(gt=0, le=LONGEST_ANSWER_BY_A_PERSON_S, allow_inf_nan=False)] = 4 * 3600.0
    """From the start of the dispatch until the owner has looked: half a working day, so that an unknown of the morning
    is looked at before evening."""
    halts_per_task: Annotated[int, Field(ge=0)] = 5
    """How many runs of one task a worker starts again after they halted before the claim (B6). Reads only: a submit is
    never repeated. After that the task waits for a person."""
    halt_wait_s: Seconds = 30.0
    """A worker's wait after the first such halt; it doubles with each. A `Retry-After` of the site that is longer
    wins."""
    longest_halt_wait_s: Seconds = 1800.0
    """The longest of these waits: a site that comes back is noticed within half an hour."""

    @field_validator("upstream_proxy")
    @classmethod
    def _proxy(cls, given: str | None) -> str | None:
        if not given:
            return None
        if "@" in given:
            raise ValueError("an address holds no credentials; say in upstream_proxy_credentials where they are")
        found = _PROXY.fullmatch(given)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ValueError("a proxy is http://HOST:PORT or https://HOST:PORT")
        return given.rstrip("/")

    @field_validator("no_proxy")
    @classmethod
    def _hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if not _HOSTS.fullmatch(one):
                raise ValueError(f"{one!r} is no HOST, .DOMAIN (all below it), NETWORK/BITS, HOST:PORT or *")
        return given

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.write_within_s >= self.lease_s / 3:
            raise ValueError("write_within_s must be well below lease_s, or a release could outlive its lease")
        if self.halt_wait_s > self.longest_halt_wait_s:
            raise ValueError("halt_wait_s must not be more than longest_halt_wait_s")
        if self.client_certificate is None and (self.client_key or self.client_key_password):
            raise ValueError("client_key and client_key_password mean nothing without client_certificate")
        return self


class Settings(RunSettings, BaseSettings):
    """The program's surroundings, and what a run goes by where no table of the file says otherwise."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Path = Field(default_factory=default_home)
    key_folder: Path = Field(default_factory=default_key_folder)
    database_url: str | None = None
    """None: a SQLite file in the home folder."""
    browser: Path | None = None
    """None: the first Chromium or Chrome that is found."""
    browser_engine: Engine = Engine.CHROMIUM
    """What is known of ways around the gate was measured on Chromium; `firefox` and `webkit` are less proven."""
    browser_contexts: Annotated[int, Field(ge=1)] = 200
    """How many contexts a browser process opens before it is replaced, when none is open: each leaves something behind
    in it. At three contexts a run, some seventy runs."""
    browser_lifetime_s: Seconds = 6 * 3600.0
    """How long it is used at most: memory grows, and an update of its program waits for the next start."""
    browser_losses: Annotated[int, Field(ge=1)] = 3
    """When so many browsers were lost within ten minutes, no other is started until that has passed: one that dies of
    what a site does to it dies with each run."""
    browser_endpoint: str | None = None
    """None: a browser is launched here. Else where one that runs elsewhere is reached, through a tunnel: this end of
    it, such as `http://127.0.0.1:9222` (its DevTools port) or `ws://127.0.0.1:3000/…` (a Playwright server)."""
    browser_endpoint_kind: EndpointKind | None = None
    """None: told by the address; `http` and a path `/devtools/…` are Chromium's own, another `ws` a Playwright
    server's."""
    gate_listen: str | None = None
    """None: any free port. Else the ports of the gates, such as `41000-41007`, so that a tunnel can carry them: two
    for each run at once. Always on loopback."""
    gate_reached_as: str | None = None
    """None: the same ports on 127.0.0.1. Else where the remote browser finds the first of them, an IP address and a
    port; the others follow it."""
    headed: bool = False
    """Show the browser."""
    minimum_free_bytes: Annotated[int, Field(ge=0)] = 200 * 1024 * 1024
    """Below this nothing is claimed: evidence *after* must still fit."""
    worker_contexts: Annotated[int, Field(ge=1, le=64)] = 2
    """How many runs a worker has going at once. A context of a heavy editor takes a core for seconds; two keep two
    cores busy."""
    worker_poll_s: Seconds = 2.0
    """How often an idle worker asks the ledger what may run; a person who has just approved does not notice it."""
    worker_recover_s: Seconds = 30.0
    """How often a worker settles attempts whose run is gone. Their account waits for its lease anyway."""
    flow: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Tables `[flow."NAME"]`: what runs of that flow go by."""
    site: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Tables `[site."https://HOST"]`: what runs at that site go by."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        no_misspelt_variable(os.environ)
        return init_settings, _Environment(settings_cls), TomlConfigSettingsSource(settings_cls, settings_file())

    @field_validator("site")
    @classmethod
    def _origins(cls, tables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for given, table in tables.items():
            origin = origin_of_url(given)
            if given.rstrip("/").count("/") > 2:
                raise ValueError(f'[site."{given}"] names a page; a site is scheme and host: [site."{origin}"]')
            if origin in found:
                raise ValueError(f'[site."{origin}"] stands there twice, in two spellings')
            found[origin] = table
        return found

    @model_validator(mode="after")
    def _tables_fit(self) -> Self:
        """Every table alone, and every flow with every site: what a run would meet is refused now."""
        for flow in self.flow:
            self._effective({f'[flow."{flow}"]': self.flow[flow]})
        for site in self.site:
            self._effective({f'[site."{site}"]': self.site[site]})
        for flow in self.flow:
            for site in self.site:
                self._effective({f'[flow."{flow}"]': self.flow[flow], f'[site."{site}"]': self.site[site]})
        return self

    def for_run(self, flow: str, site: str) -> Settings:
        """The settings with the tables of this flow (its name in the record) and this site (an address at it) in
        effect."""
        tables = {name: table for name, table in self.tables(flow, site) if table}
        if not tables:
            return self
        own = self._effective(tables)
        return self.model_copy(update={name: getattr(own, name) for name in RunSettings.model_fields})

    def tables(self, flow: str, site: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The tables for a run as (heading, values), in rising order of precedence."""
        yield f'[flow."{flow}"]', self.flow.get(flow, {})
        try:
            origin = origin_of_url(site)
        except ValueError:
            return  # no site that a table could name
        yield f'[site."{origin}"]', self.site.get(origin, {})

    def _effective(self, tables: Mapping[str, Mapping[str, Any]]) -> RunSettings:
        """What a run goes by under these tables, the later ones winning. Raises ValueError, naming the tables."""
        values = {name: getattr(self, name) for name in RunSettings.model_fields}
        for table in tables.values():
            values |= table
        try:
            return RunSettings.model_validate(values)
        except ValidationError as error:
            said = "; ".join(
                flaw(one["loc"], one["msg"], one["type"], RunSettings.model_fields)
                for one in error.errors(include_url=False)
            )
            raise ValueError(f"{' with '.join(tables)}: {said}") from None

    @property
    def ledger_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'ledger.sqlite'}"

    @property
    def evidence_folder(self) -> Path:
        return self.home / "evidence"

    @property
    def receipts_folder(self) -> Path:
        return self.home / "receipts"

    @property
    def payload_files_folder(self) -> Path:
        return self.home / "payload-files"

    @property
    def identities_folder(self) -> Path:
        return self.home / "identities"


class _Environment(EnvSettingsSource):
    """The environment, for everything but the tables: those are the file's."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        if field_name in TABLES:
            return None, field_name, False
        return super().get_field_value(field, field_name)


def settings_file() -> Path:
    """Where the file is looked for."""
    return Path(os.environ.get(f"{PREFIX}HOME") or default_home()) / FILE


def variables() -> Mapping[str, str]:
    """The environment variable of every setting that has one -> the setting."""
    return {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields if name not in TABLES}


def no_misspelt_variable(environment: Mapping[str, str]) -> None:
    """Raises `BadInput` for a variable that looks like ours and is not: a limit that somebody believes to have set."""
    known = {*variables(), *NOT_SETTINGS}
    for given in sorted(environment):
        name = given.upper()
        if not name.startswith(PREFIX) or name in known:
            continue
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"Is {near[0]} meant?" if near else "Unset it; docs/operating.md lists all settings."
        raise BadInput(f"The environment variable {given} is no setting. {hint}")


def flaw(place: tuple[int | str, ...], message: str, kind: str, names: Iterable[str]) -> str:
    """One of the validator's errors in words for a person. `names` are the settings that could stand at that place."""
    name = ".".join(str(part) for part in place)
    if kind == "extra_forbidden":
        if name in Settings.model_fields:
            return f"{name} is a setting of the whole program and stands outside such a table"
        near = difflib.get_close_matches(name, list(names), n=1)
        return f"{name} is no setting{f' ({near[0]}?)' if near else ''}"
    said = message.removeprefix("Value error, ")
    return f"{name}: {said}" if name else said

"""Every deadline, window, budget and path in one place (B6). Read from the environment (`INTERLOCK_…`) and from
`settings.toml` in the home folder; the environment wins. The defaults are starting points, each with its reason.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Self

import platformdirs
from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

DAY_S = 24 * 3600.0
LONGEST_APPROVAL_S = 366 * DAY_S

Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
"""A limit that holds. Nothing means "for ever": the driver takes 0 for no limit at all, and any time that is compared
with "not a number" is never over."""
Delay = Annotated[float, Field(ge=0, le=DAY_S, allow_inf_nan=False)]


def default_home() -> Path:
    """Where ledger and evidence live, unless `INTERLOCK_HOME` says otherwise."""
    return Path(platformdirs.user_data_dir("interlock"))


def default_key_folder() -> Path:
    """Keys live apart from the data, so that a copy of the data folder does not carry them (C9)."""
    return Path(platformdirs.user_config_dir("interlock"))


class Settings(BaseSettings):
    """One run's surroundings. Times in seconds, none of them longer than a day but for an approval's."""

    model_config = SettingsConfigDict(env_prefix="INTERLOCK_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=default_home)
    key_folder: Path = Field(default_factory=default_key_folder)
    database_url: str | None = None
    """None: a SQLite file in the home folder."""
    browser: Path | None = None
    """None: the first Chromium or Chrome that is found."""
    trust: tuple[Path, ...] = ()
    """Certificate authorities (PEM files) that are trusted upstream beside the system's: a company's own, a test's."""
    headed: bool = False
    """Show the browser."""

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
    minimum_free_bytes: Annotated[int, Field(ge=0)] = 200 * 1024 * 1024
    """Below this nothing is claimed: evidence *after* must still fit."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        home = Path(os.environ.get("INTERLOCK_HOME") or default_home())
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, home / "settings.toml")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.write_within_s >= self.lease_s / 3:
            raise ValueError("write_within_s must be well below lease_s, or a release could outlive its lease")
        return self

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
    def identities_folder(self) -> Path:
        return self.home / "identities"

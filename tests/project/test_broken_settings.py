"""A setting that would take a limit away is refused, not taken."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from executor.settings import Settings

TIMES = (
    "lease_s",
    "prepare_s",
    "step_s",
    "gesture_s",
    "effect_window_s",
    "answer_s",
    "connect_s",
    "write_within_s",
    "body_s",
    "evidence_s",
    "look_s",
    "approval_s",
    "respond_by_s",
    "halt_wait_s",
    "longest_halt_wait_s",
    "worker_poll_s",
    "worker_recover_s",
    "browser_lifetime_s",
)


def _with(folder: Path, **given: object) -> Settings:
    return Settings(home=folder, key_folder=folder / "keys", **given)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, 1e9])
@pytest.mark.parametrize("name", TIMES)
def test_a_time_that_is_no_limit(name: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=name):
        _with(tmp_path, **{name: value})


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 1e9])
def test_a_delay_that_never_ends(value: float, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="verify_delays_s"):
        _with(tmp_path, verify_delays_s=(0.0, value))


@pytest.mark.parametrize(("name", "value"), [("reads_per_view", 0), ("minimum_free_bytes", -1)])
def test_a_number_below_what_it_may_be(name: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=name):
        _with(tmp_path, **{name: value})


def test_a_write_may_not_outlive_its_lease(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="write_within_s"):
        _with(tmp_path, lease_s=9.0, write_within_s=3.0)


def test_every_time_is_in_the_list() -> None:
    assert {name for name in Settings.model_fields if name.endswith("_s")} == {*TIMES, "verify_delays_s"}

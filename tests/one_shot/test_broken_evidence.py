"""A run whose evidence cannot be written any more after its verdict still records its end and writes its receipt."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
from desk import Desk

from executor.errors import Exit
from executor.one_shot import keeping

pytestmark = pytest.mark.browser


async def test_a_file_system_without_links_gets_copies(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(keeping, "os", SimpleNamespace(link=no_links))
    ended = await desk.publish()
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None and ended.ending.evidence is not None
    pictures = ended.ending.evidence.pictures
    assert pictures
    assert all((desk.settings.home / one.path).stat().st_size > 0 for one in pictures)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), OSError(errno.ENOSPC, "full")])
async def test_an_end_without_its_evidence_is_recorded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fails(_run: Any) -> None:
        raise error

    monkeypatch.setattr(keeping, "keep_wire_log", fails)
    ended = await desk.publish()
    assert ended.exit is Exit.SUCCEEDED
    assert desk.playground.truth.publish_count() == 1
    assert ended.ending is not None
    assert "evidence" in ended.ending.detail
    assert ended.receipt.record.version > 0

"""`interlock settings`: every value with where it came from, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from executor.cli.main import execute


def test_every_setting_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.toml").write_text(
        'look_s = 40\nanswer_s = 5\n[flow.wordpress]\nlook_s = 20\n[site."https://blog.example"]\nlook_s = 10\n'
        'owner = "web team"\n'
    )
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path))
    monkeypatch.setenv("INTERLOCK_ANSWER_S", "6")
    monkeypatch.setenv("INTERLOCK_DATABASE_URL", "postgresql://user:geheim@db.example/x?password=geheim")

    def shown(*more: str) -> dict[str, tuple[object, str]]:
        assert execute(["settings", "--json", *more]) == 0
        found = json.loads(capsys.readouterr().out)
        return {name: (one["value"], one["from"]) for name, one in found.items()}

    general = shown()
    assert general["look_s"] == (40, "file")
    assert general["answer_s"] == (6, "environment")
    assert general["gesture_s"] == (10, "default")
    assert general["home"] == (str(tmp_path), "environment")
    assert shown("--flow", "wordpress")["look_s"] == (20, "flow table")
    both = shown("--flow", "wordpress", "--site", "https://blog.example/news")
    assert (both["look_s"], both["owner"]) == ((10, "site table"), ("web team", "site table"))

    assert execute(["settings"]) == 0
    said = capsys.readouterr().out
    assert "geheim" not in said + str(general)
    assert "db.example" in said

    assert execute(["settings", "--site", "blog"]) == 2
    monkeypatch.setenv("INTERLOCK_LOOKS", "3")
    assert execute(["settings"]) == 2
    assert "INTERLOCK_LOOKS is no setting" in capsys.readouterr().err
    monkeypatch.delenv("INTERLOCK_LOOKS")
    (tmp_path / "settings.toml").write_text("answr_s = 5\n")
    assert execute(["settings"]) == 2
    assert "answr_s is no setting (answer_s?)" in capsys.readouterr().err

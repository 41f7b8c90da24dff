"""Tables of a flow and of a site in `settings.toml`, and variables that are none of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from executor.errors import BadInput
from executor.settings import NOT_SETTINGS, RunSettings, Settings, variables

ROOT = Path(__file__).resolve().parents[2]


def written(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    folder.joinpath("settings.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("INTERLOCK_HOME", str(folder))
    return Settings()


def test_a_site_wins_over_a_flow_and_a_flow_over_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_LOOK_S", "50")
    settings = written(
        tmp_path,
        """
        look_s = 40
        connect_s = 4
        [flow."wordpress"]
        look_s = 20
        answer_s = 90
        owner = "web team"
        [site."https://Blog.Example:443"]
        answer_s = 120
        verify_delays_s = [0, 5]
        """,
        monkeypatch,
    )
    both = settings.for_run("wordpress", "https://blog.example/news/")
    assert (both.look_s, both.answer_s, both.owner, both.verify_delays_s) == (20, 120, "web team", (0, 5))
    assert (both.connect_s, both.home) == (4, tmp_path), "the rest stays as it is, and a folder stays the program's"
    only_site = settings.for_run("ghost", "https://blog.example")
    assert (only_site.look_s, only_site.answer_s, only_site.owner) == (50, 120, "operator"), (
        "the environment is general"
    )
    assert settings.for_run("ghost", "http://blog.example") is settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[flow."w"]\nanser_s = 3', r'\[flow\."w"\]: anser_s is no setting \(answer_s\?\)'),
        ('[site."http://a"]\nhome = "/x"', r'\[site\."http://a"\]: home is a setting of the whole program'),
        ('[flow."w"]\nanswer_s = 0', r'\[flow\."w"\]: answer_s: .*greater than 0'),
        ('[site."http://a/blog"]\nanswer_s = 3', r'names a page; a site is scheme and host: \[site\."http://a"\]'),
        ('[site."blog"]\nanswer_s = 3', "not an absolute http or https address"),
        ('[site."http://a"]\n[site."http://A:80"]', "twice"),
        ('[flow."w"]\nwrite_within_s = 100', r'\[flow\."w"\]: write_within_s must be well below lease_s'),
        (
            '[flow."w"]\nwrite_within_s = 15\n[site."http://a"]\nlease_s = 45',
            r'\[flow\."w"\] with \[site\."http://a"\]: write_within_s must be well below lease_s',
        ),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_by_its_name(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValidationError, match=said):
        written(tmp_path, text, monkeypatch)


def test_what_is_refused_is_not_repeated() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database_url="postgresql://u:geheim@h/d", look_s=0)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "near"), [("INTERLOCK_ANSER_S", "INTERLOCK_ANSWER_S"), ("interlock_hom", "INTERLOCK_HOME")]
)
def test_a_misspelt_variable_is_noticed(name: str, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(BadInput, match=f"variable {name} is no setting. Is {near} meant"):
        Settings()


def test_tables_are_of_the_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_FLOW", '{"w": {"answer_s": 3}}')
    with pytest.raises(BadInput, match="INTERLOCK_FLOW is no setting"):
        Settings()


def test_every_variable_that_the_program_reads_is_known() -> None:
    named = {
        name
        for package in ("executor", "flows", "evidence", "playground", "tools")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "settings.py"
        for name in re.findall(r'"(INTERLOCK_[A-Z_]+)"', path.read_text(encoding="utf-8"))
    }
    named.remove("INTERLOCK_NOTE")  # the name of a constant
    assert named - set(variables()) <= NOT_SETTINGS <= named


def test_what_a_run_goes_by_survives_being_written_down() -> None:
    settings = Settings(flow={"w": {"answer_s": 9}}, site={"http://a": {"trust": ["/ca.pem"]}})
    assert Settings(**settings.model_dump(mode="json")).for_run("w", "http://a/x").trust == (Path("/ca.pem"),)
    assert set(RunSettings.model_fields) < set(Settings.model_fields)

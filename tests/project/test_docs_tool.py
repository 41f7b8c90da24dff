"""The generated parts of the docs: renewed between their markers, and nothing else touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs import DocsError, main, render


def table() -> str:
    return "| a |\n|---|\n| 1 |\n"


GENERATORS = {"table": f"{__name__}:table", "gone": f"{__name__}:no_such_generator"}
TEXT = "# Title\n\n<!-- generated: table -->\nold\n<!-- end -->\n\nafter\n"
FRESH = "# Title\n\n<!-- generated: table -->\n\n| a |\n|---|\n| 1 |\n\n<!-- end -->\n\nafter\n"


def test_renews_a_part_and_finds_it_fresh_the_second_time() -> None:
    first = render(TEXT, GENERATORS)
    assert (first.text, first.stale) == (FRESH, ("table",))
    second = render(first.text, GENERATORS)
    assert (second.text, second.stale) == (FRESH, ())


@pytest.mark.parametrize("text", ["", "# only prose\n", "a line about `<!-- end -->` within\n"])
def test_leaves_text_without_parts_alone(text: str) -> None:
    assert render(text, {}).text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- generated: table -->\n", "'table' is never closed"),
        ("<!-- generated: table -->\n<!-- generated: table -->\n", "line 2: the part 'table' is still open"),
        ("<!-- end -->\n", "line 1: <!-- end --> closes nothing"),
        ("<!-- generated: other -->\n<!-- end -->\n", "no generator is named 'other'"),
        ("<!-- generated: gone -->\n<!-- end -->\n", "'gone' cannot be loaded"),
    ],
)
def test_a_wrong_marker_is_an_error(text: str, message: str) -> None:
    with pytest.raises(DocsError, match=message):
        render(text, GENERATORS)


def test_check_names_the_stale_part_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(TEXT)
    assert main(["--check"], root=tmp_path, generators=GENERATORS, files={}) == 1
    assert capsys.readouterr().out == "docs/page.md: table is stale: run `make docs`\n"
    assert page.read_text() == TEXT
    assert main([], root=tmp_path, generators=GENERATORS, files={}) == 0
    assert page.read_text() == FRESH
    assert main(["--check"], root=tmp_path, generators=GENERATORS, files={}) == 0
    page.write_text("<!-- end -->\n")
    assert main(["--check"], root=tmp_path, generators=GENERATORS, files={}) == 2


def test_a_file_made_as_a_whole_is_renewed_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    whole = {"receipt.schema.json": "executor.receipts:schema_json"}
    assert main(["--check"], root=tmp_path, generators={}, files=whole) == 1
    assert "docs/receipt.schema.json is stale" in capsys.readouterr().out
    assert main([], root=tmp_path, generators={}, files=whole) == 0
    assert (tmp_path / "docs" / "receipt.schema.json").read_text(encoding="utf-8").startswith("{")
    assert main(["--check"], root=tmp_path, generators={}, files=whole) == 0

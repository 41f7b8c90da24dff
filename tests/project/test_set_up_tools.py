"""The small checks around the project: the lock answers to pyproject.toml, and a skipped test is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import lock, named_tests, no_skips

ROOT = Path(__file__).resolve().parents[2]
HASH = "--hash=sha256:" + "0" * 64
PYPROJECT = """
[project]
dependencies = ["Alpha_One>=2"]
[project.optional-dependencies]
dev = ["beta[extra]>=1,<2"]
"""


def test_this_lock_is_fresh() -> None:
    assert lock.main(ROOT) == 0


def test_a_fresh_lock_has_no_problems() -> None:
    pinned = f"alpha-one==2.1 \\\n    {HASH} \\\n    {HASH}\nbeta==1.5 ; sys_platform == 'linux' \\\n    {HASH}\n"
    assert lock.problems(PYPROJECT, pinned) == []


@pytest.mark.parametrize(
    ("pinned", "problem"),
    [
        (f"alpha-one==2.1 {HASH}\n", "beta[extra]<2,>=1 is not in the lock"),
        (f"alpha-one==1.9 {HASH}\nbeta==1.5 {HASH}\n", "Alpha_One>=2 is locked at 1.9"),
        (f"alpha-one==2.1\nbeta==1.5 {HASH}\n", "alpha-one 2.1 has no hash, or one that is not SHA-256"),
        (
            f"alpha-one==2.1 --hash=md5:00\nbeta==1.5 {HASH}\n",
            "alpha-one 2.1 has no hash, or one that is not SHA-256",
        ),
        (
            f"--extra-index-url elsewhere\nalpha-one==2.1 {HASH}\nbeta==1.5 {HASH}\n",
            "not a pinned package: --extra-index-url elsewhere",
        ),
        (
            f"alpha-one==2.1 {HASH}\nbeta==1.5 {HASH}\ngamma @ file:gamma.whl {HASH}\n",
            "not a pinned package: gamma @ file:gamma.whl",
        ),
    ],
)
def test_what_makes_a_lock_stale(pinned: str, problem: str) -> None:
    assert lock.problems(PYPROJECT, pinned) == [problem]


def report(*cases: str) -> str:
    body = "".join(f'<testcase classname="tests.a" name="test_{n}">{case}</testcase>' for n, case in enumerate(cases))
    return f"<testsuites><testsuite>{body}</testsuite></testsuites>"


def skipped(reason: str, kind: str = "pytest.skip") -> str:
    return f'<skipped type="{kind}" message="{reason}">somewhere</skipped>'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (report("", ""), 0),
        (report("", skipped(f"a {no_skips.ALLOWED}: no network")), 0),
        (report("", skipped("known", kind="pytest.xfail")), 0),
        (report("", skipped("needs root")), 1),
        (report(skipped(no_skips.ALLOWED)), 1),
        (report(), 1),
    ],
)
def test_a_skip_is_a_failure(text: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(text)
    assert no_skips.main([str(path)]) == code


def test_a_refused_skip_is_named() -> None:
    summary = no_skips.summarise(report("", skipped("needs root")))
    assert (summary.ran, summary.refused) == (1, ("tests.a::test_1: needs root",))


def test_no_report_at_all_is_a_failure() -> None:
    assert no_skips.main([]) == 2


PAGE = "| A1 | It holds. | `tests/room/test_file.py::test_it`<br>`tests/room/test_file.py::TestIt::test_that` |"
CASE = '<testcase classname="{}" name="{}">{}</testcase>'


@pytest.mark.parametrize(
    ("cases", "lacking"),
    [
        ([("tests.room.test_file", "test_it[one-two]", ""), ("tests.room.test_file.TestIt", "test_that", "")], ()),
        ([("tests.room.test_file", "test_it", "")], ("tests/room/test_file.py::TestIt::test_that",)),
        (
            [
                ("tests.room.test_file", "test_it[good]", ""),
                ("tests.room.test_file", "test_it[bad]", "<failure/>"),
                ("tests.room.test_file.TestIt", "test_that", ""),
            ],
            ("tests/room/test_file.py::test_it",),
        ),
        (
            [("tests.room.test_file", "test_it", ""), ("tests.room.test_file.TestIt", "test_that", "<skipped/>")],
            ("tests/room/test_file.py::TestIt::test_that",),
        ),
    ],
)
def test_a_test_that_a_page_names_must_have_run_and_passed(
    cases: list[tuple[str, str, str]], lacking: tuple[str, ...]
) -> None:
    report = f"<testsuites><testsuite>{''.join(CASE.format(*one) for one in cases)}</testsuite></testsuites>"
    assert named_tests.missing([PAGE], [report]) == lacking

"""Which browser is taken: on machines made of directories and small scripts, and on this one."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from pathlib import Path

import pytest

from executor.browser import finding
from executor.browser.finding import (
    BrowserMissing,
    Machine,
    Source,
    find_browser,
    install_browser,
    is_snap,
    manual_command,
    parse_version,
    playwright_cache,
)

DEBIAN = {"ID": "debian"}
UBUNTU = {"ID": "ubuntu", "ID_LIKE": "debian"}


def executable(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


class Site:
    """A machine under `root`: its own PATH, home, Playwright and package manager."""

    def __init__(self, root: Path, os_release: dict[str, str] | None = None, user_is_root: bool = False) -> None:
        self.bin = root / "bin"
        self.home = root / "home"
        self.log = root / "commands"
        for directory in (self.bin, self.home):
            directory.mkdir()
        # `python` stands in for Playwright: asked for the path it names one, asked to install it may make it.
        self.downloaded = self.home / ".cache/ms-playwright/chromium-9/chrome"
        self.python = self.program("python", f'echo "python $*" >> {self.log}; exit 1')
        # Only what the scripts themselves need is taken from the real system.
        tools = root / "tools"
        tools.mkdir()
        for name in ("cat", "chmod", "env", "mkdir", "sleep", "sh"):
            tools.joinpath(name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
        self.machine = Machine(
            environment={"PATH": f"{self.bin}:{tools}", "HOME": str(self.home)},
            python=self.python,
            system="linux",
            os_release=os_release or {},
            root=user_is_root,
        )

    def program(self, name: str, body: str) -> Path:
        return executable(self.bin / name, body)

    def playwright(self, *, download: bool, version: str = "Chromium 141.0.7390.37") -> None:
        make = (
            f"mkdir -p {self.downloaded.parent}; "
            f"printf '#!/bin/sh\\necho \"{version}\"\\n' > {self.downloaded}; chmod +x {self.downloaded}"
            if download
            else "echo 'download refused' >&2; exit 1"
        )
        self.program(
            "python",
            f'echo "python $1 $2 $3" >> {self.log}\nif [ "$1" = -c ]; then echo {self.downloaded}; else {make}; fi',
        )

    @property
    def commands(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Chromium 156.0.8078.114 built on Debian GNU/Linux 12\n", ("Chromium", "156.0.8078.114")),
        ("Google Chrome 141.0.7390.65 \n", ("Google Chrome", "141.0.7390.65")),
        ("Google Chrome for Testing 141.0.7390.37\n", ("Google Chrome for Testing", "141.0.7390.37")),
        ("[1:2:ERROR] noise 1.2\nChromium 99.0\n", ("Chromium", "99.0")),
        ("Mozilla Firefox 128.0\n", None),
        ("Python 3.11.7\n", None),
        ("Chromium without a number\n", None),
        ("", None),
    ],
)
def test_reads_product_and_version(output: str, expected: tuple[str, str] | None) -> None:
    assert parse_version(output) == expected


def test_setting_comes_first_and_is_never_replaced(site: Site, tmp_path: Path) -> None:
    site.program("chromium", "echo Chromium 150.0.0.1")
    chosen = executable(tmp_path / "mine", "echo Google Chrome 151.0.0.2")
    found = find_browser(chosen, machine=site.machine)
    assert (found.path, found.product, found.version, found.source) == (
        chosen,
        "Google Chrome",
        "151.0.0.2",
        Source.SETTING,
    )
    assert found.major == 151
    with pytest.raises(BrowserMissing, match=r"INTERLOCK_BROWSER names .*absent, which is not an executable file"):
        find_browser(tmp_path / "absent", machine=site.machine)
    with pytest.raises(BrowserMissing, match=r"which is not a Chromium or Chrome: .*`interlock browser install`"):
        find_browser(executable(tmp_path / "fox", "echo Mozilla Firefox 128.0"), machine=site.machine)


def test_installed_browsers_in_order_without_starting_playwright(site: Site) -> None:
    site.playwright(download=True)
    site.program("google-chrome", "echo Google Chrome 141.0.0.1")
    site.program("chromium-browser", "echo 'sh: unexpected operator' >&2; echo Chromium 142.0.0.1")
    found = find_browser(machine=site.machine)
    assert (found.path, found.version, found.source) == (
        site.bin / "chromium-browser",
        "142.0.0.1",
        Source.INSTALLED,
    )
    assert site.commands == ""


def test_a_broken_one_is_passed_over(site: Site) -> None:
    site.program("chromium", "echo 'error while loading libnss3.so' >&2; exit 127")
    with pytest.raises(BrowserMissing, match=r"chromium does not start: error while loading libnss3\.so"):
        find_browser(machine=site.machine)
    site.program("google-chrome-stable", "echo Google Chrome 141.0.0.1")
    assert find_browser(machine=site.machine).product == "Google Chrome"


def test_a_silent_one_is_ended_with_its_children(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(finding, "VERSION_SECONDS", 0.5)
    child = tmp_path / "child"
    site.program("chromium", f"sleep 600 & echo $! > {child}; wait")
    started = time.monotonic()
    with pytest.raises(BrowserMissing, match="did not tell its version within"):
        find_browser(machine=site.machine)
    assert time.monotonic() - started < 10
    with contextlib.suppress(ProcessLookupError):  # gone already
        process = os.pidfd_open(int(child.read_text()))
        try:
            ended, _, _ = select.select([process], [], [], 10)
        finally:
            os.close(process)
        assert ended, "a child of the browser outlived the time limit"


def test_playwright_is_asked_only_when_it_has_downloaded_something(site: Site) -> None:
    site.playwright(download=True)
    with pytest.raises(
        BrowserMissing, match=r"^No usable Chromium or Chrome was found: run `interlock browser install`"
    ):
        find_browser(machine=site.machine)
    assert site.commands == ""
    executable(site.downloaded, "echo Chromium 141.0.7390.37")
    found = find_browser(machine=site.machine)
    assert (found.path, found.source) == (site.downloaded, Source.PLAYWRIGHT)


def test_a_snap_comes_last(site: Site) -> None:
    wrapper = site.program("chromium-browser", "echo Chromium 142.0.0.1; exit 0; exec /snap/bin/chromium")
    assert is_snap(wrapper)
    assert find_browser(machine=site.machine).snap
    site.playwright(download=True)
    executable(site.downloaded, "echo Chromium 141.0.7390.37")
    assert find_browser(machine=site.machine).source is Source.PLAYWRIGHT


def test_macos_applications(tmp_path: Path) -> None:
    site = Site(tmp_path)
    chrome = executable(
        site.home / "Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "echo Google Chrome 141.0.0.1",
    )
    machine = Machine(environment=site.machine.environment, python=site.python, system="darwin")
    assert find_browser(machine=machine).path == chrome


def test_playwright_cache_follows_its_settings(site: Site, tmp_path: Path) -> None:
    def cache(system: str = "linux", **extra: str) -> Path | None:
        environment = {**site.machine.environment, **extra}
        return playwright_cache(Machine(environment=environment, python=site.python, system=system))

    assert cache() == site.home / ".cache/ms-playwright"
    assert cache(XDG_CACHE_HOME=str(tmp_path)) == tmp_path / "ms-playwright"
    assert cache("darwin") == site.home / "Library/Caches/ms-playwright"
    assert cache(PLAYWRIGHT_BROWSERS_PATH=str(tmp_path)) == tmp_path
    assert cache(PLAYWRIGHT_BROWSERS_PATH="0") is None


def test_install_leaves_a_working_browser_alone(site: Site) -> None:
    site.program("chromium", "echo Chromium 150.0.0.1")
    report = install_browser(machine=site.machine)
    assert report.browser is not None
    assert [step.sentence for step in report.steps] == [f"Found Chromium 150.0.0.1 at {site.bin / 'chromium'}."]
    assert site.commands == ""


def test_install_by_playwright(site: Site) -> None:
    site.playwright(download=True)
    report = install_browser(machine=site.machine)
    assert report.browser is not None
    assert report.browser.source is Source.PLAYWRIGHT
    assert report.next_command is None
    assert [step.succeeded for step in report.steps] == [False, True, True]
    assert report.steps[1].command == f"{site.python} -m playwright install --no-shell chromium"


def test_install_by_apt_when_playwright_cannot(tmp_path: Path) -> None:
    site = Site(tmp_path, DEBIAN, user_is_root=True)
    site.playwright(download=False)
    made = f"printf '#!/bin/sh\\necho Chromium 150.0.0.1\\n' > {site.bin}/chromium; chmod +x {site.bin}/chromium"
    site.program("apt-get", f'echo "apt-get $* $DEBIAN_FRONTEND" >> {site.log}; [ "$1" = update ] && exit 0\n{made}')
    report = install_browser(machine=site.machine)
    assert report.browser is not None
    assert report.browser.path == site.bin / "chromium"
    assert "download refused" in report.steps[1].sentence
    assert site.commands.splitlines()[-2:] == [
        "apt-get update noninteractive",
        "apt-get install -y --no-install-recommends chromium fonts-liberation libatomic1 noninteractive",
    ]


def test_install_by_apt_through_a_sudo_that_does_not_ask(tmp_path: Path) -> None:
    site = Site(tmp_path, DEBIAN)
    site.program("apt-get", "echo 'no such package' >&2; exit 100")
    site.program("sudo", f'echo "sudo $*" >> {site.log}; [ "$1" = -n ] || exit 1; shift; exec "$@"')
    site.program("true", "exit 0")
    report = install_browser(machine=site.machine)
    assert report.browser is None
    assert "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install" in site.commands
    assert "no such package" in report.steps[-1].sentence


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        (
            DEBIAN,
            "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends chromium fonts-liberation "
            "libatomic1'",
        ),
        (UBUNTU, "{python} -m playwright install --with-deps chromium"),
        ({}, "{python} -m playwright install --with-deps chromium"),
    ],
)
def test_when_nothing_works_one_command_is_named(tmp_path: Path, os_release: dict[str, str], command: str) -> None:
    site = Site(tmp_path, os_release)
    report = install_browser(machine=site.machine)
    assert report.browser is None
    assert not any(step.succeeded for step in report.steps)
    assert report.next_command == command.format(python=site.python)
    assert "apt-get" not in site.commands


def test_the_named_command_on_macos_and_as_root(site: Site) -> None:
    def command(system: str, os_release: dict[str, str], root: bool) -> str:
        return manual_command(Machine({}, site.python, system, os_release, root))

    assert command("darwin", {}, False) == "brew install --cask google-chrome"
    assert command("linux", DEBIAN, True).startswith("apt-get update && ")


@pytest.mark.browser
def test_this_machine() -> None:
    configured = os.environ.get("INTERLOCK_BROWSER")
    found = find_browser(Path(configured) if configured else None)
    assert found.path.is_file()
    assert found.major > 100
    assert Machine.here().python == Path(sys.executable)

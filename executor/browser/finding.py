"""Which browser is used, and how one is had when there is none.

The order is fixed: the setting (`INTERLOCK_BROWSER`, handed in by the caller), then a Chromium or Chrome
that the machine has, then the copy that Playwright downloaded. A snap comes last: its confinement hides
`/tmp` and dot directories from the browser, so profiles and files that we place there are not seen.

Debian's `chromium` is a shell wrapper: it complains on standard error (so only standard output is read for
the version) and puts the flags of `/etc/chromium.d` ahead of ours (so of two equal flags ours is the later).

This module starts `--version`, Playwright's installer and apt, each with a time limit. It may not launch a
browser on a page, holds no launch flags, and prints nothing: callers render the reports.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from executor.browser.engines import Engine

DEBIAN_PACKAGES = ("chromium", "fonts-liberation", "libatomic1")
"""The browser, fonts to show text with, and a library that the node of Playwright's driver is linked against."""
INSTALL_COMMAND = "interlock browser install"

NAMES_ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MACOS_APPLICATIONS = (
    "Applications/Chromium.app/Contents/MacOS/Chromium",
    "Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)

VERSION_SECONDS = 20.0  # a snap unpacks itself at its first start
DRIVER_SECONDS = 30.0
DOWNLOAD_SECONDS = 900.0  # about 170 MB, for a slow line
PACKAGES_SECONDS = 900.0

_NAMES = {Engine.CHROMIUM: "Chromium or Chrome", Engine.FIREFOX: "Firefox", Engine.WEBKIT: "WebKit"}
_CALLED = {Engine.CHROMIUM: "chrom", Engine.FIREFOX: "firefox", Engine.WEBKIT: "webkit"}
_REVISION = re.compile(r"-(\d+)$")
_PRODUCT = re.compile(r"^\s*(?P<product>[A-Za-z][A-Za-z ]*?)\s+(?P<version>\d+(?:\.\d+){1,3})\b", re.MULTILINE)
_ASK_PLAYWRIGHT = (
    "from playwright.sync_api import sync_playwright\n"
    "with sync_playwright() as playwright: print(playwright.{engine}.executable_path)"
)


class Source(StrEnum):
    """Where a browser was found, in order of preference."""

    SETTING = "setting"
    INSTALLED = "installed"
    PLAYWRIGHT = "playwright"


@dataclass(frozen=True)
class Browser:
    """A browser that answered to `--version`. `version` has up to four numbers, as in "156.0.8078.114"."""

    path: Path
    product: str
    version: str
    source: Source
    snap: bool = False

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


class BrowserMissing(Exception):
    """No browser can be used; the message is one sentence and names the command that changes it."""


@dataclass(frozen=True)
class Step:
    """One thing that the installation did: a sentence for a person, and the command where one was run."""

    sentence: str
    succeeded: bool
    command: str | None = None


@dataclass(frozen=True)
class InstallReport:
    """What `install_browser` did, in order. Without a browser, `next_command` is the one command to run."""

    browser: Browser | None
    steps: tuple[Step, ...]
    next_command: str | None = None


@dataclass(frozen=True)
class Machine:
    """What the search may know of the machine. Tests build one of their own; everybody else uses `here()`."""

    environment: Mapping[str, str]
    python: Path
    system: str
    """As `sys.platform` says it: "linux", "darwin"."""
    os_release: Mapping[str, str] = field(default_factory=dict)
    """The fields of os-release(5), empty where there is no such file."""
    root: bool = False

    @classmethod
    def here(cls) -> Machine:
        try:
            os_release = platform.freedesktop_os_release()
        except OSError:  # macOS and bare containers have none
            os_release = {}
        return cls(
            environment=dict(os.environ),
            python=Path(sys.executable),
            system=sys.platform,
            os_release=os_release,
            root=os.geteuid() == 0,
        )

    @property
    def families(self) -> frozenset[str]:
        """Names of this distribution and of those it descends from, such as {"ubuntu", "debian"}."""
        return frozenset(f"{self.os_release.get('ID', '')} {self.os_release.get('ID_LIKE', '')}".lower().split())


def find_engine(engine: Engine, configured: Path | None = None, *, machine: Machine | None = None) -> Browser:
    """The browser to use of that engine: of Firefox and WebKit the setting, else what Playwright downloaded.

    Raises:
        BrowserMissing: nothing usable was found, or the setting names another engine's browser.
    """
    if engine is Engine.CHROMIUM:
        return find_browser(configured, machine=machine)
    machine = machine or Machine.here()
    if configured is not None:
        return _configured_browser(configured, machine, engine)
    path = _downloaded_by_playwright(machine, engine)
    if path is None:
        raise BrowserMissing(
            f"No {_NAMES[engine]} of Playwright's was found: run `{INSTALL_COMMAND} --engine {engine.value}`."
        )
    return _of_playwright(path, engine)


def find_browser(configured: Path | None = None, *, machine: Machine | None = None) -> Browser:
    """The browser to use.

    `configured` is the operator's setting: it is used or refused, never silently replaced by another browser.
    Runs `--version` of each candidate until one answers (about 50 ms each) and starts Playwright's driver
    (about 0.6 s) only when nothing else was found and Playwright has downloaded something.

    Raises:
        BrowserMissing: nothing usable was found, or the setting names no Chromium.
    """
    machine = machine or Machine.here()
    if configured is not None:
        return _configured_browser(configured, machine)
    passed_over: list[str] = []
    snaps: list[tuple[Path, Source]] = []
    for path, source in _candidates(machine):
        if is_snap(path):
            snaps.append((path, source))
            continue
        found = _examine(path, source, machine)
        if isinstance(found, Browser):
            return found
        passed_over.append(f"{path} {found}")
    for path, source in snaps:
        found = _examine(path, source, machine)
        if isinstance(found, Browser):
            return found
        passed_over.append(f"{path} {found}")
    because = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise BrowserMissing(f"No usable Chromium or Chrome was found{because}: run `{INSTALL_COMMAND}`.")


def install_browser(engine: Engine = Engine.CHROMIUM, *, machine: Machine | None = None) -> InstallReport:
    """Sees to it that there is a browser, and says what was done.

    Takes the first that works: one that is there already, Playwright's own download, and for Chromium Debian's package
    (only as root or with a sudo that asks for no password; nothing here ever waits for a person). Never raises for
    a step that failed: the report says so, and ends with the one command to run.
    """
    machine = machine or Machine.here()
    steps: list[Step] = []
    try:
        browser = find_engine(engine, machine=machine)
    except BrowserMissing:
        steps.append(Step(f"Looked for an installed {_NAMES[engine]}: there is none that works.", False))
    else:
        steps.append(Step(f"Found {browser.product} {browser.version} at {browser.path}.", True))
        return InstallReport(browser, tuple(steps))

    if engine is not Engine.CHROMIUM:
        command = [str(machine.python), "-m", "playwright", "install", engine.value]
        _do(command, f"download {_NAMES[engine]} by Playwright", DOWNLOAD_SECONDS, machine, steps)
        path = _downloaded_by_playwright(machine, engine)
        by_hand = f"{shlex.quote(str(machine.python))} -m playwright install --with-deps {engine.value}"
        return InstallReport(
            _of_playwright(path, engine) if path else None, tuple(steps), next_command=None if path else by_hand
        )
    for attempt in (_install_by_playwright, _install_by_apt):
        browser_or_none = attempt(machine, steps)
        if browser_or_none is not None:
            return InstallReport(browser_or_none, tuple(steps))
    return InstallReport(None, tuple(steps), next_command=manual_command(machine))


# Pure: decided from what is given, no process is started.


def parse_version(output: str, engine: Engine = Engine.CHROMIUM) -> tuple[str, str] | None:
    """(product, version) from the standard output of `--version`, None when it is not of that engine.

    >>> parse_version("Google Chrome for Testing 141.0.7390.37 ")
    ('Google Chrome for Testing', '141.0.7390.37')
    """
    for match in _PRODUCT.finditer(output):
        if _CALLED[engine] in match["product"].lower():
            return match["product"], match["version"]
    return None


def manual_command(machine: Machine) -> str:
    """The one command that a person runs on this kind of machine when the installation could do nothing."""
    if machine.system == "darwin":
        return "brew install --cask google-chrome"
    if _debian_has_chromium(machine):
        command = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(DEBIAN_PACKAGES)}"
        return command if machine.root else f"sudo sh -c '{command}'"
    # Ubuntu's chromium package is a snap. Playwright calls sudo itself for the libraries it needs.
    return f"{shlex.quote(str(machine.python))} -m playwright install --with-deps chromium"


def playwright_cache(machine: Machine) -> Path | None:
    """Where Playwright downloads to; None when that is inside its own package (its setting "0")."""
    named = machine.environment.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if named == "0":
        return None
    if named:
        return Path(named)
    home = Path(machine.environment.get("HOME") or Path.home())
    if machine.system == "darwin":
        return home / "Library/Caches/ms-playwright"
    return Path(machine.environment.get("XDG_CACHE_HOME") or home / ".cache") / "ms-playwright"


def _debian_has_chromium(machine: Machine) -> bool:
    return "debian" in machine.families and "ubuntu" not in machine.families


# Looking: files and short processes.


def is_snap(path: Path) -> bool:
    """Whether the executable is a snap, or a script that hands over to one (Ubuntu's `chromium-browser`)."""
    if path.is_relative_to("/snap") or path.resolve() == Path("/usr/bin/snap"):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:  # unreadable is not the same as a snap; the version check will say what is wrong
        return False
    return head.startswith(b"#!") and b"/snap/" in head


def _candidates(machine: Machine) -> Iterator[tuple[Path, Source]]:
    seen: set[Path] = set()
    search_path = machine.environment.get("PATH", os.defpath)
    for name in NAMES_ON_PATH:
        located = shutil.which(name, path=search_path)
        if located is not None and (target := Path(located).resolve()) not in seen:
            seen.add(target)
            yield Path(located), Source.INSTALLED
    if machine.system == "darwin":
        for place in (Path("/"), Path(machine.environment.get("HOME") or Path.home())):
            for application in MACOS_APPLICATIONS:
                if (place / application).is_file():
                    yield place / application, Source.INSTALLED
    downloaded = _downloaded_by_playwright(machine)
    if downloaded is not None:
        yield downloaded, Source.PLAYWRIGHT


def _of_playwright(path: Path, engine: Engine) -> Browser:
    """Its Firefox and WebKit are builds of its own that fit one version of the driver; WebKit's launcher is a script
    that tells no version. They are known by the revision in their folder's name."""
    revisions = [found[1] for folder in path.parents if (found := _REVISION.search(folder.name))]
    return Browser(path, f"Playwright's {_NAMES[engine]}", revisions[0] if revisions else "0", Source.PLAYWRIGHT)


def _downloaded_by_playwright(machine: Machine, engine: Engine = Engine.CHROMIUM) -> Path | None:
    cache = playwright_cache(machine)
    if cache is not None and not any(cache.glob(f"{engine.value}-*")):
        return None  # spares the start of the driver
    ran = _run([str(machine.python), "-c", _ASK_PLAYWRIGHT.format(engine=engine.value)], machine, DRIVER_SECONDS)
    if not ran.succeeded or not ran.output.strip():
        return None
    path = Path(ran.output.strip().splitlines()[-1])
    return path if path.is_file() else None


def _configured_browser(configured: Path, machine: Machine, engine: Engine = Engine.CHROMIUM) -> Browser:
    path = configured.expanduser()
    if not path.is_file() or not os.access(path, os.X_OK):
        problem = "is not an executable file"
    else:
        found = _examine(path, Source.SETTING, machine, engine)
        if isinstance(found, Browser):
            return found
        problem = found
    raise BrowserMissing(
        f"INTERLOCK_BROWSER names {configured}, which {problem}: correct that setting, or remove it and run "
        f"`{INSTALL_COMMAND}`."
    )


def _examine(path: Path, source: Source, machine: Machine, engine: Engine = Engine.CHROMIUM) -> Browser | str:
    """The browser at that path, or what is wrong with it as the end of a sentence about it."""
    ran = _run([str(path), "--version"], machine, VERSION_SECONDS)
    if ran.timed_out:
        return f"did not tell its version within {VERSION_SECONDS:.0f} s"
    if not ran.succeeded:
        return f"does not start: {ran.last_line}"
    parsed = parse_version(ran.output, engine)
    if parsed is None:
        return f"is not a {_NAMES[engine]}"
    return Browser(path=path, product=parsed[0], version=parsed[1], source=source, snap=is_snap(path))


# Installing.


def _install_by_playwright(machine: Machine, steps: list[Step]) -> Browser | None:
    # The headless shell is left out: one full Chromium serves shown and hidden windows alike.
    command = [str(machine.python), "-m", "playwright", "install", "--no-shell", "chromium"]
    if not _do(command, "download Chromium by Playwright", DOWNLOAD_SECONDS, machine, steps):
        return None
    path = _downloaded_by_playwright(machine)
    if path is None:
        steps.append(Step("Playwright reported success, but its Chromium is not there.", False))
        return None
    found = _examine(path, Source.PLAYWRIGHT, machine)
    if isinstance(found, str) and "debian" in machine.families and _privileged(machine) is not None:
        # A bare system lacks the libraries that a desktop has; Playwright knows their package names.
        libraries = [str(machine.python), "-m", "playwright", "install-deps", "chromium"]
        if _do(libraries, "install the libraries that Chromium needs", PACKAGES_SECONDS, machine, steps):
            found = _examine(path, Source.PLAYWRIGHT, machine)
    return _conclude(found, path, steps)


def _install_by_apt(machine: Machine, steps: list[Step]) -> Browser | None:
    if not _debian_has_chromium(machine):
        steps.append(Step("Debian's chromium package is no choice here: this is not Debian.", False))
        return None
    prefix = _privileged(machine)
    if prefix is None:
        steps.append(Step("Debian's chromium package needs root, or sudo without a password.", False))
        return None
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    # A failed update may still leave usable lists; the installation decides.
    _do([*apt, "update"], "refresh the package lists", PACKAGES_SECONDS, machine, steps)
    install = [*apt, "install", "-y", "--no-install-recommends", *DEBIAN_PACKAGES]
    if not _do(install, "install Debian's chromium package", PACKAGES_SECONDS, machine, steps):
        return None
    located = shutil.which("chromium", path=machine.environment.get("PATH", os.defpath))
    if located is None:
        steps.append(Step("apt reported success, but there is no chromium on PATH.", False))
        return None
    return _conclude(_examine(Path(located), Source.INSTALLED, machine), Path(located), steps)


def _conclude(found: Browser | str, path: Path, steps: list[Step]) -> Browser | None:
    if isinstance(found, Browser):
        steps.append(Step(f"Found {found.product} {found.version} at {path}.", True))
        return found
    steps.append(Step(f"The new browser at {path} {found}.", False))
    return None


def _privileged(machine: Machine) -> list[str] | None:
    """What to put ahead of a command that needs root; None where a person would have to be asked."""
    if machine.root:
        return []
    sudo = shutil.which("sudo", path=machine.environment.get("PATH", os.defpath))
    if sudo is not None and _run([sudo, "-n", "true"], machine, VERSION_SECONDS).succeeded:
        return [sudo, "-n"]
    return None


def _do(command: Sequence[str], purpose: str, limit: float, machine: Machine, steps: list[Step]) -> bool:
    ran = _run(command, machine, limit)
    if ran.succeeded:
        sentence = f"Ran a command to {purpose}: done."
    elif ran.timed_out:
        sentence = f"Ran a command to {purpose}: ended after {limit:.0f} s without a result."
    else:
        sentence = f"Ran a command to {purpose}: it failed ({ran.last_line})."
    steps.append(Step(sentence, ran.succeeded, shlex.join(command)))
    return ran.succeeded


# Processes.


@dataclass(frozen=True)
class _Ran:
    code: int | None
    """None: ended by us at its time limit."""
    output: str
    errors: str

    @property
    def succeeded(self) -> bool:
        return self.code == 0

    @property
    def timed_out(self) -> bool:
        return self.code is None

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in (self.errors or self.output).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}, without a word"


def _run(command: Sequence[str], machine: Machine, limit: float) -> _Ran:
    """Runs a command to its end or to its limit in seconds. Its whole process group is ended at the limit:
    wrappers leave children behind that would hold our pipes open."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(machine.environment),
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:  # no such file, wrong architecture, not permitted: as good as a failed run
        return _Ran(code=127, output="", errors=error.strerror or str(error))
    with process:
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _end_group(process)
            return _Ran(code=None, output="", errors="")
        except BaseException:  # Ctrl-C does not reach another session by itself
            _end_group(process)
            raise
    return _Ran(code=process.returncode, output=output, errors=errors)


def _end_group(process: subprocess.Popen[str]) -> None:
    # Already gone, or run by sudo as root: then there is nothing that we may end.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

"""Launching the browser and opening contexts behind a gate. The only place that launches (C10).

Whatever the browser process does on its own meets a proxy that refuses everything; each context overrides that proxy
with its gate. Nothing here decides what may leave.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from playwright.async_api import (
    Browser,
    BrowserContext,
    BrowserType,
    Dialog,
    Page,
    Playwright,
    async_playwright,
)
from playwright.async_api import Error as PlaywrightError

from executor.browser.arguments import launch_arguments
from executor.browser.engines import Engine, context_options, launch_options
from executor.browser.finding import Browser as FoundBrowser
from executor.browser.finding import Source, find_engine
from executor.browser.leftovers import Lodging, sweep
from executor.browser.remote import GatePorts, Remote, kept_authority
from executor.errors import InterlockError, NotReady
from executor.gate.certificates import CertificateAuthority
from executor.gate.deny import DenyListener
from executor.gate.passing_tunnel import PassingTunnel
from executor.gate.proxy import Gate
from executor.settings import Settings
from flows.flow import DialogRule

_DIALOGS_KEPT = 200
"""The latest ones; a page in a loop of dialogs must not fill the memory."""
VIEWPORT = {"width": 1280, "height": 800}

_START_S = 60.0
"""For the driver and the browser together, on a machine that does much else."""
_END_S = 10.0
"""For the browser, and then for the driver, to end when asked; what is left is ended by force."""
_OPEN_S = 30.0
"""For a context and its blank page. The driver gives these no limit of its own, and a browser that is there but does
not answer would hold a run for ever: after the submit too, with its attempt open and its lease renewed."""
_REFUSALS = 3
"""A browser that opens none of so many contexts in a row is replaced."""

_AROUND_THE_GATE = "PLAYWRIGHT_DISABLE_FORCED_CHROMIUM_PROXIED_LOOPBACK"
"""With this set the driver lets loopback go around the proxy. It is taken out of the environment before launching; the
path proof would notice it too."""


class BrowserHost:
    """One browser process, shared by contexts of several runs. An async context manager."""

    def __init__(
        self,
        *,
        configured: Path | None = None,
        headed: bool = False,
        engine: Engine = Engine.CHROMIUM,
        remote: Remote | None = None,
    ) -> None:
        """`remote`: attach to a browser elsewhere; what else is given is for one that is launched here."""
        self.authority = CertificateAuthority()
        """Made anew by `start` for a remote browser."""
        self.deny = DenyListener()
        self.engine = engine
        self._configured = configured
        self._headed = headed
        self._remote = remote
        self._ports = GatePorts(remote.ports if remote else (0,))
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._lodging: Lodging | None = None
        self.lost = asyncio.Event()
        """Set when the browser process has gone away, or the connection to it."""
        self.unwell = False
        """It is there, and did not open a context in time, or none of several: fit for nothing new."""
        self._refused = 0
        """How many contexts in a row it did not open."""
        self._closing: set[asyncio.Task[None]] = set()
        self.opened = 0
        """How many contexts were opened so far."""

    @classmethod
    def of(cls, settings: Settings, *, headed: bool = False) -> Self:
        """As the settings say. Raises `BadInput`."""
        return cls(
            configured=settings.browser, headed=headed, engine=settings.browser_engine, remote=Remote.of(settings)
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def version(self) -> str:
        return self._browser.version if self._browser else ""

    def gate_ports(self) -> tuple[int, ...]:
        """Where the next gate may listen, in the order in which the ports are to be tried; 0 is any."""
        return self._ports.offer()

    async def start(self) -> None:
        """Launch, or attach to a remote browser. Raises `BrowserMissing` or `NotReady`."""
        os.environ.pop(_AROUND_THE_GATE, None)
        if self._remote is None:
            found = await asyncio.to_thread(find_engine, self.engine, self._configured)
            await self._start(lambda playwright: self._launch(playwright, found), f"The browser at {found.path}")
            return
        remote = self._remote
        self.authority = await asyncio.to_thread(kept_authority, remote.key_folder)
        await self._start(lambda playwright: remote.attach(playwright, self.authority), f"The browser at {remote.name}")

    async def _start(self, begin: Callable[[Playwright], Awaitable[Browser]], what: str) -> None:
        """The driver, and with it the browser."""
        try:
            async with asyncio.timeout(_START_S):
                self._playwright = await async_playwright().start()
                self._browser = await begin(self._playwright)
            self._browser.on("disconnected", lambda _browser: self.lost.set())
            if not self._browser.is_connected():  # before anybody listened
                self.lost.set()
            if self._lodging is not None:
                await asyncio.to_thread(self._lodging.note_profiles)
        except InterlockError:
            await self.close()
            raise
        except PlaywrightError as error:
            await self.close()
            first = str(error).strip().splitlines()[0]
            raise NotReady(f"{what} {self._fails} ({first}). {self._hint}") from error
        except TimeoutError as error:
            await self.close()
            raise NotReady(f"{what} {self._fails} within {_START_S:g} s. {self._hint}") from error
        except OSError as error:
            await self.close()
            raise NotReady(f"There is no place for the browser's temporary files: {error}.") from error
        except Exception as error:  # the driver's end is a bare Exception that says that a connection closed
            await self.close()
            raise NotReady(
                f"Playwright's driver does not start ({error}). `python -m playwright --version` shows why; on Debian "
                "it needs the package libatomic1."
            ) from error
        except BaseException:
            await self.close()
            raise

    @property
    def _fails(self) -> str:
        return "does not start" if self._remote is None else "is not reached"

    @property
    def _hint(self) -> str:
        return (
            "Try `interlock doctor`." if self._remote is None else "Look whether it runs, and whether the tunnel is up."
        )

    async def _launch(self, playwright: Playwright, found: FoundBrowser) -> Browser:
        await asyncio.to_thread(sweep)
        self._lodging = await asyncio.to_thread(Lodging.take)
        await self.deny.start()
        arguments = launch_arguments(deny_address=self.deny.address, spki=self.authority.spki, as_root=_is_root())
        launcher: BrowserType = getattr(playwright, self.engine.value)
        return await launcher.launch(
            executable_path=str(found.path),
            headless=not self._headed,
            # A run decides for itself what a signal means; the browser must not vanish under a release.
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            env=self._lodging.environment(),
            artifacts_dir=self._lodging.artefacts,
            **launch_options(
                self.engine,
                stock=found.source is not Source.PLAYWRIGHT,
                arguments=arguments,
                deny_address=self.deny.address,
            ),
        )

    async def close(self) -> None:
        """End the browser, the driver and the deny listener, by force where they do not end when asked. Never raises
        for a browser that is gone already."""
        self.lost.set()
        if self._browser is not None:
            browser, self._browser = self._browser, None
            await _quietly(browser.close())
        if self._playwright is not None:
            playwright, self._playwright = self._playwright, None
            stopping = asyncio.ensure_future(playwright.stop())
            await asyncio.wait([stopping], timeout=_END_S)
            await self._leave()
            await _quietly(stopping)
        await self._leave()
        await self.deny.close()

    async def _leave(self) -> None:
        if self._lodging is not None:
            lodging, self._lodging = self._lodging, None
            await asyncio.to_thread(lodging.leave)

    async def open(
        self,
        gate: Gate | PassingTunnel,
        *,
        cookies: Sequence[Mapping[str, Any]] = (),
        dialogs: Sequence[DialogRule] = (),
        scripts: bool = True,
    ) -> Session:
        """A fresh context whose only way out is `gate`, with one blank page. Without `scripts` no page sends anything
        by itself; a tunnel that nobody reads is for such contexts only. Raises `NotReady`."""
        if isinstance(gate, PassingTunnel) and scripts:
            raise ValueError("pages with scripts open behind a gate")
        if self._browser is None or not self._browser.is_connected():
            self.lost.set()  # whatever the driver has told: nobody is given this browser again
            raise NotReady("The browser has gone away. Run it again; nothing was dispatched.")
        opening = asyncio.ensure_future(self._open(self._browser, gate, cookies, dialogs, scripts))
        try:
            async with asyncio.timeout(_OPEN_S):
                session = await asyncio.shield(opening)
                self._refused = 0
                return session
        except PlaywrightError as error:
            # Once, it may be the cookies of an account; without an exception, it is the browser.
            self._refused += 1
            self.unwell = self.unwell or self._refused >= _REFUSALS
            raise NotReady(f"The browser did not open a context: {str(error).splitlines()[0]}") from error
        except TimeoutError as error:
            self.unwell = True
            raise NotReady(f"The browser did not open a context within {_OPEN_S:g} s.") from error
        finally:
            if not opening.done():  # the browser is shared: what it opens too late is not left in it
                opening.add_done_callback(self._close_late)

    async def _open(
        self,
        browser: Browser,
        gate: Gate | PassingTunnel,
        cookies: Sequence[Mapping[str, Any]],
        dialogs: Sequence[DialogRule],
        scripts: bool,
    ) -> Session:
        context = await browser.new_context(
            java_script_enabled=scripts,
            # At a tunnel the browser meets the site's own certificate, and does not know the authorities that we know.
            **context_options(
                self.engine, gate_address=self._reach(gate.address), any_certificate=isinstance(gate, PassingTunnel)
            ),
            service_workers="block",
            accept_downloads=False,
            viewport={"width": VIEWPORT["width"], "height": VIEWPORT["height"]},
            storage_state={"cookies": [dict(cookie) for cookie in cookies], "origins": []},  # type: ignore[arg-type]  # as the same driver gave them
        )
        session = Session(context, dialogs)
        try:
            session.page = await context.new_page()
        except PlaywrightError:
            await session.close()
            raise
        self.opened += 1
        return session

    def _reach(self, address: str) -> str:
        return address if self._remote is None else self._remote.reach(address)

    def _close_late(self, opening: asyncio.Task[Session]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            return
        closing = asyncio.ensure_future(opening.result().close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


@dataclass(frozen=True)
class DialogSeen:
    """A JavaScript dialog and what was done with it. `at` is in seconds of `time.monotonic()`."""

    at: float
    kind: str
    message: str
    accepted: bool


class Session:
    """One context and the page that a flow works on. What the page opens beside it goes through the same gate and is
    closed with the context."""

    page: Page

    def __init__(self, context: BrowserContext, dialogs: Sequence[DialogRule]) -> None:
        self._context = context
        self._rules = tuple(dialogs)
        self.dialogs: deque[DialogSeen] = deque(maxlen=_DIALOGS_KEPT)
        self.crashed = asyncio.Event()
        self._answering: set[asyncio.Task[None]] = set()
        context.on("dialog", self._on_dialog)
        context.on("page", self._on_page)

    @property
    def context(self) -> BrowserContext:
        return self._context

    def _on_page(self, page: Page) -> None:
        page.on("crash", lambda _page: self.crashed.set())

    def _on_dialog(self, dialog: Dialog) -> None:
        rule = next((rule for rule in self._rules if _answers(rule, dialog)), None)
        accept = rule is not None and rule.accept
        self.dialogs.append(DialogSeen(time.monotonic(), dialog.type, dialog.message, accept))
        answer = dialog.accept(*([rule.text] if rule and rule.text else [])) if accept else dialog.dismiss()
        task = asyncio.ensure_future(_quietly(answer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def stop_loading(self, page: Page) -> None:
        """Abandon a navigation that has no answer, keeping the page that is on screen. While one is pending, Chromium
        holds back everything that reads the page. Handled by the browser process, so it works then too."""
        devtools = await self._context.new_cdp_session(page)
        try:
            await devtools.send("Page.stopLoading")
        finally:
            await devtools.detach()

    async def cookies(self) -> list[dict[str, Any]]:
        """Every cookie of the context, as the driver gives them."""
        return [dict(cookie) for cookie in await self._context.cookies()]

    async def close(self) -> None:
        """Close the context; no page is asked. What its pages send while they go meets the gate, so that must still be
        there. Never raises for a context that is gone. Pages are not closed one by one before: a page that is about
        to show another document often never reports that it has closed."""
        await _quietly(self._context.close())


def _answers(rule: DialogRule, dialog: Dialog) -> bool:
    """Whether the rule is for this dialog. One that asks about leaving the page is meant only by its kind: an author
    who wrote a rule for the page's own question did not mean that one."""
    if dialog.type == "beforeunload" and rule.kind is None:
        return False
    return rule.kind in (None, dialog.type) and re.search(rule.message, dialog.message) is not None


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


async def _quietly(doing: Any) -> None:
    """Await something that ends a thing; that it is gone already, or takes for ever, is no news here."""
    try:
        await asyncio.wait_for(doing, _END_S)
    except (PlaywrightError, TimeoutError):
        return

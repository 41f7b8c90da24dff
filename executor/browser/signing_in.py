"""Signing in by a flow's form: a gate in phase *login* lets only the declared login writes out; the session cookies
are sealed, everything else of the context is thrown away (C9). No other write can leave while a password is typed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from playwright.async_api import Error as PlaywrightError

from executor.browser.identities import Identities, session_cookies
from executor.browser.sessions import BrowserHost
from executor.errors import NotReady
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Reason, Rules
from executor.gate.wire_log import WireLog
from executor.settings import Settings
from flows.flow import Credentials, Flow
from flows.pages import ComposerPage
from flows.wire import origin_of_url

_UNREACHED = (Reason.HOST_UNREACHABLE, Reason.TLS_FAILED, Reason.UPSTREAM_FAILED)


class SigningIn(Protocol):
    """What signing in uses."""

    @property
    def settings(self) -> Settings: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def host(self) -> BrowserHost: ...
    @property
    def routes(self) -> Routes: ...
    @property
    def limits(self) -> Limits: ...


async def sign_in(
    services: SigningIn, flow: Flow[Any], destination: str, account: str, credentials: Credentials
) -> None:
    """Sign in and seal the session under the destination's site and the account. Raises `NotReady`."""
    site = origin_of_url(destination)
    log = WireLog()
    gate = Gate(
        authority=services.host.authority,
        rules=Rules(destination_origin=site, effect=flow.effect, login=flow.login_writes),
        phase=Phase.LOGIN,
        routes=services.routes,
        door=None,
        log=log,
        before_write=None,
        limits=services.limits,
    )
    async with gate:
        session = await services.host.open(gate)
        try:
            session.page.set_default_timeout(services.settings.step_s * 1000)
            await asyncio.wait_for(
                flow.login(ComposerPage(session.page, site), destination, credentials), services.settings.prepare_s
            )
            kept = session_cookies(await session.cookies(), flow.session_cookies)
        except NotImplementedError as error:
            raise NotReady(f"{error}.") from error
        except (PlaywrightError, TimeoutError, ValueError) as error:
            if unreached := next((entry.url for entry in log if entry.reason in _UNREACHED), None):
                raise NotReady(
                    f"{unreached} could not be reached. Check the address, and that the site is up; for a private "
                    "certificate authority set INTERLOCK_TRUST."
                ) from error
            first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise NotReady(
                f"The site did not let {account} in: {first[:200]}. Check the user name and the password."
            ) from error
        finally:
            await session.close()
    if not kept:
        raise NotReady(f"The site set none of the session cookies that flow {flow.name} names; {account} is not in.")
    await asyncio.to_thread(services.identities.save, site, account, kept)

"""The engines beside Chromium, and how each of the three is launched and its contexts opened. Values only.

What is said of ways around the gate was measured on Chromium alone. Firefox and WebKit have no list of keys that they
accept, so there each context accepts any certificate: of the gate, which verifies the site's strictly, and which the
path proof has shown to be what the context talks to.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Engine(StrEnum):
    """Whose pages are shown."""

    CHROMIUM = "chromium"
    FIREFOX = "firefox"
    WEBKIT = "webkit"


class EndpointKind(StrEnum):
    """What answers at an endpoint."""

    CDP = "cdp"
    """Chromium itself, by its DevTools port."""
    PLAYWRIGHT = "playwright"
    """A Playwright server that has launched the browser."""


STOCK_FIREFOX = "moz-firefox"
"""The driver's name for Mozilla's own Firefox, driven by WebDriver BiDi; its own build is patched."""

FIREFOX_PREFS: Mapping[str, str | float | bool] = {
    # Loopback goes by the proxy like everything else, and nothing goes directly when a proxy fails.
    "network.proxy.allow_hijacking_localhost": True,
    "network.proxy.failover_direct": False,
    "network.proxy.no_proxies_on": "",
    # Names are the gate's to resolve.
    "network.trr.mode": 5,
    "network.dns.disablePrefetch": True,
    "network.dns.disablePrefetchFromHTTPS": True,
    "network.dns.echconfig.enabled": False,
    "network.dns.use_https_rr_as_altsvc": False,
    # No datagrams: QUIC, peer connections.
    "network.http.http3.enable": False,
    "media.peerconnection.enabled": False,
    # Nothing is fetched ahead of any decision.
    "network.prefetch-next": False,
    "network.predictor.enabled": False,
    "network.http.speculative-parallel-limit": 0,
    "browser.urlbar.speculativeConnect.enabled": False,
    "browser.places.speculativeConnect.enabled": False,
    # A request that the server did not answer is not repeated on a connection of another address family.
    "network.http.fast-fallback-to-IPv4": False,
    "network.http.altsvc.enabled": False,
    # Plain HTTP is not tried as HTTPS first: the gate and the approval know one address.
    "dom.security.https_first": False,
    "dom.security.https_only_mode": False,
    # Background services.
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "app.update.auto": False,
    "browser.ping-centre.telemetry": False,
    "browser.region.network.url": "",
    "browser.region.update.enabled": False,
    "browser.safebrowsing.blockedURIs.enabled": False,
    "browser.safebrowsing.downloads.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.search.update": False,
    "datareporting.healthreport.uploadEnabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.push.enabled": False,
    "dom.push.connection.enabled": False,
    "extensions.blocklist.enabled": False,
    "extensions.getAddons.cache.enabled": False,
    "extensions.update.enabled": False,
    "geo.enabled": False,
    "services.settings.server": "data:,",
    "signon.autofillForms": False,
    "signon.rememberSignons": False,
    "toolkit.telemetry.enabled": False,
    "toolkit.telemetry.unified": False,
    "toolkit.telemetry.server": "",
    # Pings of links and beacons are writes, and would be refused at the gate; why let them be tried.
    "browser.send_pings": False,
}


def launch_options(engine: Engine, *, stock: bool, arguments: list[str], deny_address: str) -> dict[str, Any]:
    """For the driver's `launch`. `arguments` are Chromium's; `stock`: a Firefox of Mozilla's own."""
    match engine:
        case Engine.CHROMIUM:
            return {"args": arguments}
        case Engine.FIREFOX:
            channel = {"channel": STOCK_FIREFOX} if stock else {}
            return {"proxy": {"server": deny_address}, "firefox_user_prefs": dict(FIREFOX_PREFS), **channel}
        case Engine.WEBKIT:
            return {"proxy": {"server": deny_address}}


def context_options(engine: Engine, *, gate_address: str, any_certificate: bool = False) -> dict[str, Any]:
    """For the driver's `new_context`: the gate as the only way out, and its certificates believed."""
    if engine is Engine.CHROMIUM:
        # "<-loopback>": loopback is no exception. The other engines make none for a context's proxy.
        proxy = {"server": gate_address, "bypass": "<-loopback>"}
        return {"proxy": proxy, "ignore_https_errors": any_certificate}
    return {"proxy": {"server": gate_address}, "ignore_https_errors": True}

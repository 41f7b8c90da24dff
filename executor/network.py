"""From the settings to the routes of a gate: which proxy, whose authorities, which certificate of ours, for each host.

Reads the files that the settings name, once, and says in one sentence what is wrong with them; opens no connection.
What it reads is secret and goes nowhere but into the routes (C9).
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from executor.errors import NotReady
from executor.gate.certificates import ClientCertificate, UnusableCertificate, UpstreamTrust
from executor.gate.dialling import HTTP_1, HTTP_2, Proxy, Route, Routes
from executor.settings import RunSettings, Settings
from flows.wire import origin_of_url


def routes_of_a_run(settings: Settings, flow: str, destination: str) -> Routes:
    """The routes of one run, every file read and checked. `settings` are the program's, not yet those of a run. Raises
    `NotReady`."""
    own = origin_of_url(destination)
    trust = cache(_trust)
    sites = {}
    for origin in {own, *settings.site}:
        named = origin == own or "client_certificate" in settings.site.get(origin, {})
        sites[origin] = _route(settings.for_run(flow, origin), trust, shows_certificate=named)
    # The tables of sites are not for other hosts, and neither is a certificate: it says who we are.
    common = settings.model_copy(update={"site": {}}).for_run(flow, own)
    return Routes(_route(common, trust, shows_certificate=False), sites)


_Trust = Callable[[tuple[Path, ...], ClientCertificate | None], UpstreamTrust]


def _route(settings: RunSettings, trust: _Trust, *, shows_certificate: bool) -> Route:
    client = None
    if shows_certificate and settings.client_certificate is not None:
        key = settings.client_key or settings.client_certificate
        _owners_alone(key, "the client key")
        password = settings.client_key_password
        client = ClientCertificate(
            settings.client_certificate,
            settings.client_key,
            None if password is None else _one_line(password, "the client key's password"),
        )
    proxy = None
    if settings.upstream_proxy:
        parts = urlsplit(settings.upstream_proxy)
        assert parts.hostname is not None and parts.port is not None  # the setting's pattern
        proxy = Proxy(parts.scheme, parts.hostname, parts.port, trust(settings.trust, None), _authorization(settings))
    return Route(trust(settings.trust, client), proxy, settings.no_proxy)


def _trust(authorities: tuple[Path, ...], client: ClientCertificate | None) -> UpstreamTrust:
    made = UpstreamTrust(authorities, client)
    try:
        made.load(HTTP_1, HTTP_2)
    except UnusableCertificate as error:
        raise NotReady(
            f"{str(error)[:1].upper()}{str(error)[1:]}. Nothing was dispatched; correct the settings."
        ) from error
    return made


def _authorization(settings: RunSettings) -> str:
    """The value of Proxy-Authorization (RFC 7617), or nothing."""
    where = settings.upstream_proxy_credentials
    if where is None:
        return ""
    if where.startswith("env:"):
        name = where.removeprefix("env:")
        words = os.environ.get(name, "")
        if not words:
            raise NotReady(f"The proxy's credentials should be in the variable {name}, which is not set.")
    else:
        words = _one_line(Path(where), "the proxy's credentials")
    if ":" not in words or not words.isprintable():
        raise NotReady(f"The proxy's credentials ({where}) are not one line of the form user:password.")
    return "Basic " + base64.b64encode(words.encode("utf-8")).decode("ascii")


def _one_line(file: Path, what: str) -> str:
    _owners_alone(file, what)
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NotReady(f"The file {file} with {what} cannot be read.") from error


def _owners_alone(file: Path, what: str) -> None:
    """Raises `NotReady` for a file that is not there, or that others on this machine may read or change."""
    try:
        found = file.stat()
    except OSError as error:
        raise NotReady(f"The file {file} with {what} cannot be read: {error.strerror}.") from error
    if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077:
        raise NotReady(f"The file {file} with {what} is open to others: chmod 600 {file}")

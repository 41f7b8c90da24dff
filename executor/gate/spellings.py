"""Under which other names lenient servers take a request for the same one: host, path and query. Pure; no decisions."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from flows.wire import OutgoingRequest


def same_place(request: OutgoingRequest, origin: str) -> bool:
    """Whether a host is the origin's own, or another name that commonly leads to the same server: the scheme and port
    beside it, the full name with its dot, with `www.` or without, and every name of this machine."""
    host = urlsplit(origin).hostname or ""
    return request.origin == origin or _place(request.host) == _place(host)


def _place(host: str) -> str:
    name = host.rstrip(".").removeprefix("www.")
    return "localhost" if name == "::1" or re.fullmatch(r"127(\.\d+){3}|(.*\.)?localhost", name) else name


def spellings(target: str) -> set[str]:
    """The target and what lenient servers take it for: decoded (twice, too), slashes collapsed, path parameters cut,
    the slash at the end there or not, the query split at semicolons."""
    path, mark, query = target.partition("?")
    paths = {path, unquote(path), unquote(unquote(path))}
    paths |= {re.sub(r";[^/]*", "", one) for one in paths}
    paths |= {re.sub(r"/{2,}", "/", one) for one in paths}
    paths |= {one.rstrip("/") or "/" for one in paths} | {one.rstrip("/") + "/" for one in paths}
    return {one + mark + split for one in paths for split in {query, query.replace(";", "&")}}

"""Masking before storing (D2, C9): what is secret never becomes evidence.

A `Redactor` is a frozen configuration that can travel to a worker process. It masks by place (a header, a cookie, a
field whose name says that it holds a token), by value (the secrets it was given, in every usual encoding) and by
shape (JWT, bearer credentials, long hex, well-known key formats). It may not read pages or store anything. Elements
that a flow names by CSS selector are masked in the page while it is read (`in_page.js`), because a selector means
nothing to text.
"""

from __future__ import annotations

import functools
import html as html_text
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from enum import StrEnum
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote, unquote_plus

from evidence import secret_forms

T = TypeVar("T")


class Kind(StrEnum):
    """Why something is masked; the word inside ``[masked:…]``."""

    PASSWORD = "password"
    TOKEN = "token"
    COOKIE = "cookie"
    AUTHORIZATION = "authorization"
    HEADER = "header"
    FIELD = "field"
    AUTOFILLED = "autofilled"
    REGION = "region"
    FRAME = "frame"
    SECRET = "secret"


@dataclass(frozen=True, order=True)
class Masked:
    """`count` values of one kind were masked at one place, such as ``query token`` or ``text``. Never holds the
    value."""

    what: Kind
    where: str
    count: int


@dataclass(frozen=True)
class Redacted(Generic[T]):
    """What is left, and what was masked in it."""

    value: T
    masked: tuple[Masked, ...] = ()


class Tally:
    """Counts masks while one piece of evidence is worked through."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Kind, str]] = Counter()

    def mask(self, kind: Kind, where: str) -> str:
        self._counts[kind, where] += 1
        return mask(kind)

    def masked(self) -> tuple[Masked, ...]:
        return tuple(sorted(Masked(what, where, count) for (what, where), count in self._counts.items()))


class _Points(Tally):
    """Puts one character for each mask, so that its place can be seen."""

    MARK = "\ue000"

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[Kind] = []

    def mask(self, kind: Kind, where: str) -> str:
        self.kinds.append(kind)
        return self.MARK


def mask(kind: Kind) -> str:
    return f"[masked:{kind}]"


def merged(*groups: Iterable[Masked]) -> tuple[Masked, ...]:
    """Several lists of masks as one, equal places added up."""
    counts: Counter[tuple[Kind, str]] = Counter()
    for group in groups:
        for entry in group:
            counts[entry.what, entry.where] += entry.count
    return tuple(sorted(Masked(what, where, count) for (what, where), count in counts.items()))


PASSWORD_NAMES = ("password", "passwd", "passphrase", "passcode", "pwd")
TOKEN_NAMES = (
    "token", "csrf", "xsrf", "nonce", "authenticity", "secret", "apikey", "accesskey", "credential", "sessionid",
    "sessid", "jwt", "assertion", "samlresponse", "cardnumber", "onetimecode", "xamzsignature",
)  # fmt: skip
"""A name is compared in lower case with everything but letters and digits removed; containing one of these is
enough. The page script is given the same lists."""
EXACT_NAMES = ("auth", "authorization", "sid", "otp", "pin", "cvc", "cvv", "sig", "hmac")
SECRET_AUTOCOMPLETE = ("current-password", "new-password", "one-time-code", "cc-number", "cc-csc")

_COOKIE_HEADERS = frozenset({"cookie", "set-cookie", "cookie2", "set-cookie2"})
_AUTHORIZATION_HEADERS = frozenset({"authorization", "proxy-authorization", "authentication-info", "x-authorization"})
_URL_HEADERS = frozenset({"referer", "location", "content-location", "origin", "refresh", "link"})
_OWN_DIGESTS = re.compile(r"(?:sha256|digest|fingerprint|hash|(?:^|_)id|operation|attempt)$")
_URL_KEYS = frozenset({"url", "location", "target", "path", "uri", "referer", "href"})
_CREDENTIALS = re.compile(
    r"\b(Bearer|Basic|Digest|Negotiate)(\s+|%20|\+)(?=[A-Za-z._~+/%-]*[0-9=])[A-Za-z0-9._~+/=%-]{12,}", re.IGNORECASE
)
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*")
_SHAPES = re.compile(
    r"(?<![0-9A-Za-z])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}\b|AIza[0-9A-Za-z_-]{35}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?P<hex>[0-9A-Fa-f]{32,})(?![0-9A-Za-z]))"
)
_SHORTEST_CREDENTIAL = 14  # characters that the two patterns above need at least
_NAME = r"(?<![\w.\[\]-])(?P<name>[A-Za-z_][\w.\[\]-]{1,60})"
_NAMED_VALUE = re.compile(_NAME + r"(?P<between>\\*[\"']?\s*[:=]\s*\\*[\"'])(?P<value>[^\"'\\<>\s]{4,})(?=\\*[\"'])")
_NAMED_QUERY = re.compile(_NAME + r"=(?P<value>[^\s&;\"'<>\[\]]{4,})")


@dataclass(frozen=True)
class Redactor:
    """What to mask beyond the rest: password fields, token-named fields, cookies and authorization always are.

    `secrets` are masked wherever they appear, at least 4 characters each (ValueError otherwise). `header_names`,
    `cookie_names` and `field_names` add names, case ignored; all cookies are masked on the wire already, a named one
    has its value masked in pages as well. `selectors` are CSS selectors of regions that no evidence may show.
    """

    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    header_names: frozenset[str] = frozenset()
    cookie_names: frozenset[str] = frozenset()
    field_names: frozenset[str] = frozenset()
    selectors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(secret) < secret_forms.MINIMUM_SECRET for secret in self.secrets):
            raise ValueError(
                f"a secret of fewer than {secret_forms.MINIMUM_SECRET} characters cannot be found in text without "
                "masking half of it: name the field, header or region that holds it instead"
            )

    def with_secrets(self, values: Iterable[str]) -> Redactor:
        """The same, knowing more secrets. Values that are too short to be searched for are left out."""
        more = frozenset(value for value in values if len(value) >= secret_forms.MINIMUM_SECRET)
        return replace(self, secrets=self.secrets | more)

    def kind_of_field(self, name: str) -> Kind | None:
        """Why a field, query parameter or key of this name is masked; None when it is not."""
        plain = plain_name(name)
        if self.field_names and any(plain_name(named) == plain for named in self.field_names):
            return Kind.FIELD
        return _kind_by_name(plain)

    def kind_of_header(self, name: str) -> Kind | None:
        lower = name.lower()
        if lower in _COOKIE_HEADERS:
            return Kind.COOKIE
        if lower in _AUTHORIZATION_HEADERS:
            return Kind.AUTHORIZATION
        if any(lower == named.lower() for named in self.header_names):
            return Kind.HEADER
        return self.kind_of_field(name)

    def text(self, text: str) -> Redacted[str]:
        """Any text: known secrets, credentials by shape, ``name: "value"`` and ``name=value`` with a telling name."""
        tally = Tally()
        return Redacted(self.masked_text(text, tally, "text"), tally.masked())

    def html(self, html: str) -> Redacted[str]:
        """A whole HTML document, masked and made inert: opened, the result runs nothing and loads nothing."""
        from evidence.html_rewriting import rewrite  # it builds on this module

        tally = Tally()
        return Redacted(rewrite(html, self, tally), tally.masked())

    def span(self, text: str) -> tuple[Kind, int, int] | None:
        """From the first to the last character that `text` would mask, and the first kind; None when there is none."""
        tally = _Points()
        marked = self.masked_text(text, tally, "")
        if not tally.kinds:
            return None
        after = len(marked) - marked.rindex(_Points.MARK) - 1
        return tally.kinds[0], marked.index(_Points.MARK), len(text) - after

    def url(self, url: str) -> Redacted[str]:
        """A URL or part of one: user information, telling query and fragment values, then everything `text` masks."""
        tally = Tally()
        return Redacted(self.masked_url(url, tally, "url"), tally.masked())

    def headers(self, headers: Iterable[tuple[str, str]]) -> Redacted[tuple[tuple[str, str], ...]]:
        """Header fields in their order. Of cookies the names stay."""
        tally = Tally()
        done = tuple((name, self._masked_header(name, value, tally)) for name, value in headers)
        return Redacted(done, tally.masked())

    def body(self, body: bytes, media_type: str) -> Redacted[bytes]:
        """A form, multipart, JSON or other body; `media_type` with its parameters. Bytes that are no UTF-8 stay as
        they are."""
        tally = Tally()
        text = body.decode("utf-8", "surrogateescape")
        done = self.masked_body(text, media_type, tally, "body")
        return Redacted(done.encode("utf-8", "surrogateescape"), tally.masked())

    def record(self, record: Mapping[str, Any]) -> Redacted[dict[str, Any]]:
        """One record of ours, such as a line of the wire log; the keys decide.

        ``headers`` (pairs or a mapping), ``url`` and its like, ``body`` (text) and ``body_hex`` are masked as what they
        are, by the record's content type; keys that end in ``sha256``, ``digest``, ``fingerprint``, ``hash`` or ``id``
        keep their long hex.
        """
        tally = Tally()
        return Redacted(self._masked_record(record, tally, ""), tally.masked())

    # What follows takes the tally of a larger piece; `where` is a short description of the place.

    def masked_secrets(self, text: str, tally: Tally, where: str) -> str:
        found = secret_forms.finder(self.secrets)
        return text if found is None else found.sub(lambda: tally.mask(Kind.SECRET, where), text)

    def masked_text(self, text: str, tally: Tally, where: str) -> str:
        if len(text) < secret_forms.MINIMUM_SECRET:
            return text
        text = self.masked_secrets(text, tally, where)
        # A page has tens of thousands of short texts: what cannot match is not searched.
        if len(text) >= _SHORTEST_CREDENTIAL:
            text = _CREDENTIALS.sub(
                lambda m: m[0] if "[masked" in m[0] else m[1] + m[2] + tally.mask(Kind.AUTHORIZATION, where), text
            )
            if "eyJ" in text:
                text = _JWT.sub(lambda _: tally.mask(Kind.TOKEN, where), text)
            text = _SHAPES.sub(lambda m: m[0] if _only_one_class(m["hex"]) else tally.mask(Kind.TOKEN, where), text)
        if "=" in text or ":" in text:
            for shape in (_NAMED_VALUE, _NAMED_QUERY):
                text = shape.sub(lambda m: self._masked_pair(m, tally, where), text)
        return text

    def masked_url(self, url: str, tally: Tally, where: str) -> str:
        head, hash_mark, fragment = url.partition("#")
        path, question_mark, query = head.partition("?")
        path = re.sub(
            r"(?<=://)[^/@\s]+(?=@)", lambda _: tally.mask(Kind.PASSWORD, f"{where} user information"), path, count=1
        )
        path = self.masked_text(path, tally, f"{where} path")
        query = self._masked_pairs(query, tally, f"{where} query")
        fragment = self._masked_pairs(fragment, tally, f"{where} fragment")
        return path + question_mark + query + hash_mark + fragment

    def masked_body(self, text: str, media_type: str, tally: Tally, where: str) -> str:
        header = Message()
        header["content-type"] = media_type or "text/plain"
        plain_type = header.get_content_type()
        if plain_type == "application/x-www-form-urlencoded":
            return self._masked_pairs(text, tally, where)
        if plain_type == "multipart/form-data" and (boundary := header.get_boundary()):
            return self._masked_parts(text, boundary, tally, where)
        if plain_type == "application/json" or plain_type.endswith("+json"):
            try:
                value = json.loads(text)
            except ValueError:
                return self.masked_text(text, tally, where)
            done = self.masked_json(value, tally, where)
            return text if done == value else json.dumps(done, ensure_ascii=False)
        return self.masked_text(text, tally, where)

    def masked_json(self, value: Any, tally: Tally, where: str) -> Any:
        if isinstance(value, str):
            return self.masked_text(value, tally, where)
        if isinstance(value, list):
            return [self.masked_json(item, tally, where) for item in value]
        if isinstance(value, dict):
            done = {}
            for key, item in value.items():
                kind = self.kind_of_field(key)
                name = self.masked_text(key, tally, f"{where} name")
                if kind is not None and isinstance(item, str | int | float) and not isinstance(item, bool):
                    done[name] = tally.mask(kind, f"{where} {name[:60]}")
                else:
                    done[name] = self.masked_json(item, tally, where)
            return done
        if isinstance(value, int | float) and str(value) in self.secrets:
            return tally.mask(Kind.SECRET, where)
        return value

    def _masked_pair(self, match: re.Match[str], tally: Tally, where: str) -> str:
        kind = self.kind_of_field(match["name"])
        if kind is None or "[masked:" in match["value"]:
            return match[0]
        start, end = match.span("value")
        before = match.start()
        return match[0][: start - before] + tally.mask(kind, where) + match[0][end - before :]

    def _masked_pairs(self, query: str, tally: Tally, where: str) -> str:
        """``a=b&c=d``; what is not masked keeps its spelling."""
        done = []
        for pair in re.split(r"([&;])", query):
            name, equals, value = pair.partition("=")
            kind = self.kind_of_field(unquote_plus(name)) if equals else None
            if kind is not None and value:
                done.append(f"{name}={tally.mask(kind, f'{where} {self._shown(name)}')}")
                continue
            plain = unquote_plus(pair)
            masked = self.masked_text(plain, tally, where)
            done.append(pair if masked == plain else quote(masked, safe="=[]:/?@!$'()*,~ "))
        return "".join(done)

    def _masked_parts(self, text: str, boundary: str, tally: Tally, where: str) -> str:
        done = []
        for part in text.split(f"--{boundary}"):
            head, gap, content = part.partition("\r\n\r\n")
            named = re.search(r'name="([^"]*)"', head)
            kind = self.kind_of_field(named[1]) if named else None
            if kind is not None and gap and named is not None:
                content = tally.mask(kind, f"{where} {self._shown(named[1])}") + "\r\n"
            else:
                content = self.masked_text(content, tally, where)
            done.append(self.masked_text(head, tally, where) + gap + content)
        return f"--{boundary}".join(done)

    def _masked_header(self, name: str, value: str, tally: Tally) -> str:
        where = f"header {name.lower()}"
        kind = self.kind_of_header(name)
        if kind is Kind.COOKIE:
            first_only = name.lower().startswith("set-")
            pairs = [value.partition(";")] if first_only else [(pair, ";", "") for pair in value.split(";")]
            done = []
            for pair, semicolon, attributes in pairs:
                cookie, equals, content = pair.partition("=")
                shown = self.masked_text(cookie, tally, where)
                kept = tally.mask(kind, where) if content or not equals else ""
                done.append(
                    f"{shown}={kept}" + (semicolon + self.masked_text(attributes, tally, where) if first_only else "")
                )
            return ("" if first_only else ";").join(done)
        if kind is Kind.AUTHORIZATION:
            scheme, space, rest = value.partition(" ")
            return f"{scheme} {tally.mask(kind, where)}" if space and rest else tally.mask(kind, where)
        if kind is not None:
            return tally.mask(kind, where)
        if name.lower() in _URL_HEADERS:
            return self.masked_url(value, tally, where)
        return self.masked_text(value, tally, where)

    def _masked_record(self, record: Mapping[str, Any], tally: Tally, where: str) -> dict[str, Any]:
        headers = record.get("headers")
        pairs: list[tuple[str, str]] = []
        if isinstance(headers, Mapping):
            pairs = [(str(name), str(value)) for name, value in headers.items()]
        elif isinstance(headers, list | tuple):
            pairs = [(str(pair[0]), str(pair[1])) for pair in headers]
        media_type = next((value for name, value in pairs if name.lower() == "content-type"), "")
        media_type = str(record.get("media_type") or record.get("content_type") or media_type)
        done: dict[str, Any] = {}
        for key, value in record.items():
            place = f"{where} {key}".strip()
            if key == "headers":
                masked = [(name, self._masked_header(name, content, tally)) for name, content in pairs]
                done[key] = dict(masked) if isinstance(value, Mapping) else [list(pair) for pair in masked]
            elif key == "body" and isinstance(value, str):
                done[key] = self.masked_body(value, media_type, tally, place)
            elif key.endswith("_hex") and isinstance(value, str):
                done[key] = self._masked_hex(value, media_type, tally, place)
            elif isinstance(value, str) and key in _URL_KEYS:
                done[key] = self.masked_url(value, tally, place)
            elif isinstance(value, str) and _OWN_DIGESTS.search(key):
                done[key] = self.masked_secrets(value, tally, place)
            elif isinstance(value, Mapping):
                done[key] = self._masked_record(value, tally, place)
            elif isinstance(value, list | tuple):
                done[key] = [
                    self._masked_record(item, tally, place)
                    if isinstance(item, Mapping)
                    else self.masked_json(item, tally, place)
                    for item in value
                ]
            else:
                done.update(self.masked_json({key: value}, tally, where or "record"))
        return done

    def _masked_hex(self, value: str, media_type: str, tally: Tally, where: str) -> str:
        try:
            text = bytes.fromhex(value).decode("utf-8", "surrogateescape")
        except ValueError:
            return self.masked_text(value, tally, where)
        masked = self.masked_body(text, media_type, tally, where)
        return value if masked == text else masked.encode("utf-8", "surrogateescape").hex()

    def _shown(self, name: str) -> str:
        """A name as it may stand in a manifest: it could itself be a secret."""
        return self.masked_text(unquote(name), Tally(), "")[:60]


def _only_one_class(digits: str | None) -> bool:
    """Hex digits that are all decimal, or all letters: a long number or a word, not a token."""
    return digits is not None and (digits.isdecimal() or digits.isalpha())


@functools.lru_cache(maxsize=4096)
def _kind_by_name(plain: str) -> Kind | None:
    if any(part in plain for part in PASSWORD_NAMES) or plain == "pass":
        return Kind.PASSWORD
    if any(part in plain for part in TOKEN_NAMES) or plain in EXACT_NAMES:
        return Kind.TOKEN
    return None


@functools.lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """A name as names are compared: lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", html_text.unescape(name).lower())

"""Rewrites a serialised page so that it shows the same, gives no secret away and runs nothing when it is opened.

Works on text with `html.parser`, token by token, and writes every attribute anew. It may not fetch anything. It is
the authority on what a stored snapshot contains; what the page script left out before is only a saving.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser

from evidence.redaction import SECRET_AUTOCOMPLETE, Kind, Redactor, Tally

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
FRAME_MARK = "data-interlock-frame"
"""Put on a frame element by the page script: the number of the child document that belongs inside."""

_DROPPED = frozenset({"script", "noscript", "base", "object", "embed", "applet", "portal", "fencedframe"})
_VOID = frozenset(
    {
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
        "frame",
    }
)
_RAW = frozenset({"style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
_URL_ATTRIBUTES = frozenset(
    {
        "href",
        "src",
        "action",
        "formaction",
        "xlink:href",
        "poster",
        "data",
        "cite",
        "background",
        "longdesc",
        "ping",
        "manifest",
    }
)
_DROPPED_ATTRIBUTES = frozenset({"srcdoc", "ping", "manifest", "integrity", FRAME_MARK})
_ATTRIBUTE_NAME = re.compile(r"""[^\s"'<>/=\x00-\x1f]+""")
_TAG_NAME = re.compile(r"[a-zA-Z][^\s/>\x00]*")
_MASK = re.compile(r"\[masked:[a-z]+\]")


def rewrite(document: str, redactor: Redactor, tally: Tally, frames: Sequence[str] = (), base: str = "") -> str:
    """The document, masked and inert, with a policy and (when given) its base address in front.

    `frames` are child documents that were already rewritten; a frame element marked with number n gets the n-th.
    """
    rewriter = _Rewriter(redactor, tally, frames)
    rewriter.feed(document)
    rewriter.close()
    body = redactor.masked_secrets("".join(rewriter.out), tally, "html")
    front = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    if base:
        front += f'<base href="{html.escape(redactor.masked_url(base, tally, "base"))}">'
    return f"<!doctype html>{front}{body}"


class _Rewriter(HTMLParser):
    def __init__(self, redactor: Redactor, tally: Tally, frames: Sequence[str]) -> None:
        super().__init__(convert_charrefs=False)
        self.out: list[str] = []
        self._redactor = redactor
        self._tally = tally
        self._frames = frames
        self._text: list[str] = []
        self._dropping: list[str] = []
        self._masking: tuple[str, Kind] | None = None
        self._raw: str | None = None

    # Character references arrive apart from text; a secret may run across them, so a whole run is looked at as one.

    def handle_data(self, data: str) -> None:
        self._text.append(data if self._raw is None else html.escape(data) if self._raw != "style" else data)

    def handle_entityref(self, name: str) -> None:
        self._text.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._text.append(f"&#{name};")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end_text()
        if tag in _DROPPED or not _TAG_NAME.fullmatch(tag):
            if tag not in _VOID:
                self._dropping.append(tag)
            return
        if self._dropping:
            return
        attributes = {name: value or "" for name, value in reversed(attrs)}
        if tag == "meta" and "http-equiv" in attributes:
            return  # refresh, set-cookie, a policy that is not ours
        if tag == "link" and set(attributes.get("rel", "").lower().split()) & {
            "prefetch",
            "preload",
            "preconnect",
            "modulepreload",
        }:
            return
        self.out.append(f"<{tag}{self._attributes(tag, attributes)}>")
        if tag in _RAW:
            self._raw = tag
        kind = self._field_kind(tag, attributes)
        if kind is not None and tag in ("textarea", "select", "output"):
            self._masking = (tag, kind)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._end_text()
        if self._dropping:
            if tag == self._dropping[-1]:
                self._dropping.pop()
            return
        if self._raw == tag:
            self._raw = None
        if self._masking is not None and self._masking[0] == tag:
            self._masking = None
        if tag not in _VOID and tag not in _DROPPED and _TAG_NAME.fullmatch(tag):
            self.out.append(f"</{tag}>")

    def close(self) -> None:
        super().close()
        self._end_text()

    # Comments, declarations and processing instructions are not shown to a reader: left out.

    def handle_comment(self, data: str) -> None:
        self._end_text()

    def handle_decl(self, decl: str) -> None:
        self._end_text()

    def handle_pi(self, data: str) -> None:
        self._end_text()

    def unknown_decl(self, data: str) -> None:
        self._end_text()

    def _end_text(self) -> None:
        if not self._text:
            return
        text = "".join(self._text)
        self._text.clear()
        if self._dropping:
            return
        if self._masking is not None:
            self.out.append(self._tally.mask(self._masking[1], f"{self._masking[0]} text") if text.strip() else text)
            return
        if self._raw == "style":
            masked = self._redactor.masked_text(text, self._tally, "style")
            self.out.append(masked.replace("<", r"\3c "))
            return
        plain = html.unescape(text)
        masked = self._redactor.masked_text(plain, self._tally, "text")
        self.out.append(text if masked == plain else html.escape(masked, quote=False))

    def _attributes(self, tag: str, attributes: Mapping[str, str]) -> str:
        done = []
        kind = self._field_kind(tag, attributes)
        for name, value in attributes.items():
            if name.startswith("on") or name in _DROPPED_ATTRIBUTES or not _ATTRIBUTE_NAME.fullmatch(name):
                continue
            masked = self._masked_attribute(tag, name, value, kind)
            if masked is not None:
                done.append(f' {name}="{html.escape(masked)}"')
        if tag in ("iframe", "frame"):
            number = attributes.get(FRAME_MARK, "")
            if number.isdigit() and int(number) < len(self._frames):
                done.append(f' srcdoc="{html.escape(self._frames[int(number)])}"')
            done = [one for one in done if not one.startswith(' src="')] + [' sandbox=""']
        return "".join(reversed(done))

    def _masked_attribute(self, tag: str, name: str, value: str, kind: Kind | None) -> str | None:
        """None leaves the attribute out."""
        where = f"{tag} {name}"
        if name == "sandbox":
            return None
        if name in _URL_ATTRIBUTES:
            scheme = re.sub(r"[\s\x00-\x20]", "", value).partition(":")[0].lower()
            if scheme in ("javascript", "vbscript"):
                return None
            if scheme == "data":
                shows = tag in ("img", "source", "image")
                return self._redactor.masked_secrets(value, self._tally, where) if shows else None
            return self._redactor.masked_url(value, self._tally, where)
        if kind is not None and name in ("value", "content") and value:
            return value if _MASK.fullmatch(value) else self._tally.mask(kind, where)
        named = self._redactor.kind_of_field(name)  # such as data-nonce
        if named is not None and value and not _MASK.fullmatch(value):
            return self._tally.mask(named, where)
        return self._redactor.masked_text(value, self._tally, where)

    def _field_kind(self, tag: str, attributes: Mapping[str, str]) -> Kind | None:
        if tag not in ("input", "textarea", "select", "output", "meta", "option", "button", "param"):
            return None
        if attributes.get("type", "").lower() == "password":
            return Kind.PASSWORD
        if set(attributes.get("autocomplete", "").lower().split()).intersection(SECRET_AUTOCOMPLETE):
            return Kind.PASSWORD
        for name in ("name", "id", "property"):
            kind = self._redactor.kind_of_field(attributes.get(name, ""))
            if kind is not None:
                return kind
        return None

"""How a secret looks in other clothes: finds it percent-encoded, JSON-escaped, HTML-escaped, in base64
or in hex.

Pure text work. A mixture is found too (one character escaped, the next not, ``%25``-style double encoding): every
character is matched in all of its spellings. Not found: a secret that was split, compressed, hashed or encrypted.
"""

from __future__ import annotations

import base64
import functools
import html.entities
import re
from collections.abc import Callable
from dataclasses import dataclass, field

MINIMUM_SECRET = 4
"""Characters. Anything shorter would mask half of an ordinary page; such a value is masked by its field instead."""

_ENTITIES: dict[str, list[str]] = {}
for _name, _character in html.entities.html5.items():
    if len(_character) == 1 and _name.endswith(";"):
        _ENTITIES.setdefault(_character, []).append(_name)

_BACKSLASH = r"(?:\\|%(?:25)*5[cC])+"
_MASK = r"(?P<mask>\[masked:[a-z]+\])"
_BASE64 = "[A-Za-z0-9+/_-]"
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


@dataclass(frozen=True)
class Finder:
    """Finds the secrets in all their forms. A mask that is already there is stepped over: a secret may be one of its
    words."""

    _literals: tuple[str, ...] = field(repr=False)
    _encoded: re.Pattern[str] = field(repr=False)
    _spelled: re.Pattern[str] = field(repr=False)

    def sub(self, replacement: Callable[[], str], text: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            return match[0] if match["mask"] else replacement()

        # Plain searches are a hundred times cheaper than the pattern, and nearly always say no.
        if any(literal in text for literal in self._literals):
            text = self._encoded.sub(replaced, text)
        return self._spelled.sub(replaced, text)


@functools.lru_cache(maxsize=64)
def finder(secrets: frozenset[str]) -> Finder | None:
    """One for all of them, the longest first; None when there is nothing to find."""
    usable = sorted((s for s in secrets if len(s) >= MINIMUM_SECRET), key=lambda s: (-len(s), s))
    if not usable:
        return None
    encoded = [form for secret in usable for form in _encoded(secret)]
    spelled = ["".join(_spellings(character) for character in secret) for secret in usable]
    starts = "".join(sorted({secret[0] for secret in usable} | set("%\\&[+")))
    return Finder(
        tuple(dict.fromkeys(literal for literal, _ in encoded)),
        re.compile("|".join([_MASK, *dict.fromkeys(form for _, form in encoded)])),
        re.compile(f"(?=[{re.escape(starts)}])(?:{'|'.join([_MASK, *spelled])})"),
    )


def _spellings(character: str) -> str:
    code = ord(character)
    forms = [re.escape(character)]
    forms.append("".join(f"%(?:25)*{_any_case(f'{byte:02x}')}" for byte in character.encode("utf-8", "surrogatepass")))
    units = character.encode("utf-16-be", "surrogatepass")
    forms.append("".join(rf"{_BACKSLASH}u{_any_case(units[i : i + 2].hex())}" for i in range(0, len(units), 2)))
    forms.append(f"&(?:amp;)*#0*{code};?")
    forms.append(f"&(?:amp;)*#[xX]0*{_any_case(f'{code:x}')};?")
    forms.extend(f"&(?:amp;)*{re.escape(name)}" for name in _ENTITIES.get(character, ()))
    if code < 256:
        forms.append(rf"{_BACKSLASH}x{_any_case(f'{code:02x}')}")
    if character in _SHORT_ESCAPES:
        forms.append(rf"{_BACKSLASH}{_SHORT_ESCAPES[character]}")
    if character == " ":
        forms.append(r"\+")
    before = f"(?:{_BACKSLASH})?" if character in "\"\\/'" else ""
    return f"{before}(?:{'|'.join(forms)})"


def _any_case(hexadecimal: str) -> str:
    return "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in hexadecimal)


def _encoded(secret: str) -> list[tuple[str, str]]:
    """A literal part and the pattern around it, for hex and for base64 at each of the three alignments in longer data.

    The literal holds the characters of base64 that depend on nothing else; the pattern also takes the one or two beside
    them that give a part of the secret away.
    """
    raw = secret.encode("utf-8", "surrogatepass")
    forms = [(raw.hex(), raw.hex()), (raw.hex().upper(), raw.hex().upper())]
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        spare = (before + len(raw)) % 3
        core = encoded[(0, 2, 3)[before] : len(encoded) - (0, 3, 2)[spare]]
        if len(core) < MINIMUM_SECRET:
            continue
        front = f"{_BASE64}?" if before else ""
        back = f"(?:{_BASE64}{{1,2}}(?:=|%3D){{0,2}})?" if spare else ""
        for plus, slash in (("+", "/"), ("-", "_"), ("%2B", "%2F")):
            literal = core.replace("+", plus).replace("/", slash)
            forms.append((literal, front + re.escape(literal) + back))
    return forms

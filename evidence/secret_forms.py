"""How a secret looks in other clothes: patterns that find it percent-encoded, JSON-escaped, HTML-escaped, in base64
or in hex.

Pure text work. A mixture is found too (one character escaped, the next not, ``%25``-style double encoding): every
character is matched in all of its spellings. Not found: a secret that was split, compressed, hashed or encrypted.
"""

from __future__ import annotations

import base64
import functools
import html.entities
import re

MINIMUM_SECRET = 4
"""Characters. Anything shorter would mask half of an ordinary page; such a value is masked by its field instead."""

_ENTITIES: dict[str, list[str]] = {}
for _name, _character in html.entities.html5.items():
    if len(_character) == 1 and _name.endswith(";"):
        _ENTITIES.setdefault(_character, []).append(_name)

_BACKSLASH = r"(?:\\|%(?:25)*5[cC])+"
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


@functools.lru_cache(maxsize=64)
def pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    """One pattern for all of them, the longest first; None when there is nothing to find.

    It also matches a mask that is already there, as group ``mask``: a secret may be one of its words.
    """
    usable = sorted((s for s in secrets if len(s) >= MINIMUM_SECRET), key=lambda s: (-len(s), s))
    if not usable:
        return None
    spelled = ["".join(_spellings(character) for character in secret) for secret in usable]
    literal = sorted({form for secret in usable for form in _whole_forms(secret)}, key=lambda s: (-len(s), s))
    return re.compile("|".join([r"(?P<mask>\[masked:[a-z]+\])", *(re.escape(form) for form in literal), *spelled]))


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


def _whole_forms(secret: str) -> set[str]:
    """Base64 at each of the three alignments inside longer data (only the characters that depend on nothing else),
    and hex."""
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {raw.hex(), raw.hex().upper()}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        start = (0, 2, 3)[before]
        spare = (before + len(raw)) % 3
        end = len(encoded) if spare == 0 else len(encoded) - (3 if spare == 1 else 2)
        core = encoded[start:end]
        if len(core) >= MINIMUM_SECRET:
            forms.update((core, core.replace("+", "-").replace("/", "_")))
            forms.add(core.replace("+", "%2B").replace("/", "%2F"))
    return forms

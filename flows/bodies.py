"""The forms in which a request body can be read: fields of a form, files of a multipart body, JSON.

Pure parsers of bytes. A body that is not in the expected form, or that two servers in use could read in two ways, is
`UnreadableBody`. Files are digested and not kept, so that a body may be read piece by piece from a disk.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

MAX_FIELDS = 1000
"""Fields of a form. PHP drops what comes after (`max_input_vars`), other servers read it; and millions of them would
hold up whoever reads."""


MAX_FIELD_BYTES = 8 * 1024 * 1024
"""Heads and fields of a multipart body together; files are not counted, they are not kept."""


class UnreadableBody(ValueError):
    """The body is not in the form that the reader expects; the message says which form and why."""


@dataclass(frozen=True)
class Upload:
    """A file in a multipart body, by what can be compared. `name` is the file's name as the browser wrote it, `size` in
    bytes, `sha256` in lower-case hex."""

    field: str
    name: str
    media_type: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Form:
    """Fields of a submitted form. `fields` are names and values in order."""

    fields: tuple[tuple[str, str], ...]
    files: tuple[Upload, ...]

    def __contains__(self, name: str) -> bool:
        """Whether the field is there, under any of the spellings that PHP takes for it."""
        return any(same_name(key, name) for key in (*self._names, *(file.field for file in self.files)))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self._names))

    @property
    def _names(self) -> Iterator[str]:
        return (key for key, _ in self.fields)

    def get(self, name: str) -> str | None:
        """The value of a field; None when it is not there. Raises `UnreadableBody` for one that occurs more than once
        (see `OutgoingRequest.query_value`), a file of that name included."""
        value = only_value(self.fields, name)
        if any(same_name(file.field, name) for file in self.files):
            raise UnreadableBody(f"{name!r} is a file")
        return value

    def upload(self, name: str) -> Upload | None:
        """The file of a field; None when there is none. Raises `UnreadableBody` as `get` does. A field that was left
        empty is a file without a name and without a byte, as browsers send it."""
        if any(same_name(key, name) for key, _ in self.fields):
            raise UnreadableBody(f"{name!r} is no file")
        only_value(tuple((file.field, file.name) for file in self.files), name)
        return next((file for file in self.files if file.field == name), None)

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.fields if key == name)


def only_value(pairs: tuple[tuple[str, str], ...], name: str) -> str | None:
    """The value of a name that stands alone; None when it is not there. Raises `UnreadableBody`."""
    found = [(key, value) for key, value in pairs if same_name(key, name)]
    if not found:
        return None
    if len(found) > 1 or found[0][0] != name:
        raise UnreadableBody(f"{name!r} occurs more than once, or under another spelling")
    return found[0][1]


def same_name(key: str, name: str) -> bool:
    """PHP reads `a.b`, `a b` and ` a_b` as `a_b`, and `a[]` replaces `a`."""
    (head, rest), (other, others_rest) = _php_name(name), _php_name(key)
    return other == head and (not rest or not others_rest or rest == others_rest)


def _php_name(name: str) -> tuple[str, str]:
    head, bracket, rest = name.partition("\0")[0].lstrip(" ").partition("[")
    return head.replace(".", "_").replace(" ", "_"), bracket + rest


_CHARSET = re.compile(r"""charset\s*=\s*["']?([^\s;"',]*)""", re.IGNORECASE)


def is_utf8(content_type: str) -> bool:
    return all(found.lower() in ("utf-8", "utf8") for found in _CHARSET.findall(content_type))


_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def urlencoded(body: bytes) -> tuple[tuple[str, str], ...]:
    """Fields as the WHATWG serialiser writes them. A bare `;` separates fields for some servers and not for others; a
    broken escape is an error for some and text for others."""
    try:
        text = body.decode("ascii")
        if ";" in text or _BAD_ESCAPE.search(text):
            raise UnreadableBody("the urlencoded body holds a bare semicolon or a broken escape")
        fields = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=MAX_FIELDS
        )
        return _in_utf8(tuple(fields))
    except UnreadableBody:
        raise
    except ValueError as error:
        raise UnreadableBody(f"the urlencoded body cannot be read: {error}") from error


def _in_utf8(fields: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The fields, unless one of them says that all are in another charset (RFC 7578 section 4.6)."""
    if any(name.lower() == "_charset_" and value.lower() not in ("", "utf-8", "utf8") for name, value in fields):
        raise UnreadableBody("a field of the form names another charset than UTF-8")
    return fields


def strict_json(data: bytes) -> Any:
    """JSON that every server reads alike. Raises `UnreadableBody`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise UnreadableBody("the JSON body repeats a member name")
        return found

    def no_constant(name: str) -> Any:
        raise UnreadableBody(f"the JSON body holds {name}, which JSON does not have")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise UnreadableBody("the JSON body holds a number that is out of range")
        return number

    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant, parse_float=finite
        )
        if rb"\ud" in data.lower():  # half of a surrogate pair is text for some servers and an error for others
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnreadableBody:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"the JSON body cannot be read: {error}") from error
    return value


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MULTIPART = re.compile(
    r"""multipart/form-data\s*;\s*boundary=(?:"([0-9A-Za-z'()+_,./:=? -]{1,70})"|([0-9A-Za-z'()+_,./:=?-]{1,70}))\s*""",
    re.IGNORECASE,
)
_PART_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_DISPOSITION = re.compile(r"""form-data;[ ]*name="([^"\\]*)"(?:;[ ]*filename="([^"\\]*)")?""", re.IGNORECASE)
_PLAIN_ENCODINGS = ("", "7bit", "8bit", "binary")


class Multipart:
    """RFC 7578 as browsers write it (WHATWG HTML section 4.10.21.8), and nothing else: one boundary that occurs only
    where it separates, lines that end in CRLF, one quoted name without backslashes, no transfer encoding, no multipart
    inside. `%22`, `%0D` and `%0A` in names stay as they were sent.

    Fed in pieces; `close` gives the form. Both raise `UnreadableBody`.
    """

    def __init__(self, content_type: str) -> None:
        match = _MULTIPART.fullmatch(content_type)
        if match is None:
            raise UnreadableBody("the multipart body has no boundary, or more parameters than one")
        self._delimiter = b"--" + (match[1] or match[2]).encode("ascii")
        self._waiting = bytearray(b"\r\n")  # the first delimiter may stand at the very beginning
        self._part: _Part | None = None
        self._fields: list[tuple[str, str]] = []
        self._files: list[Upload] = []
        self._kept = 0

    def feed(self, data: bytes) -> None:
        self._waiting += data
        while (found := self._waiting.find(self._delimiter)) >= 0:
            if self._waiting[max(found - 2, 0) : found] != b"\r\n":
                raise UnreadableBody("the multipart body is not framed as its boundary says")
            self._pass_on(found - 2)
            self._end_part()
            self._part = _Part()
            del self._waiting[: 2 + len(self._delimiter)]
        self._pass_on(len(self._waiting) - len(self._delimiter) - 2)

    @property
    def held(self) -> int:
        """Bytes in memory that grow with the body."""
        return self._kept + len(self._waiting)

    def close(self) -> Form:
        self._pass_on(len(self._waiting))
        if self._part is None or bytes(self._part.head) not in (b"--", b"--\r\n"):
            raise UnreadableBody("the multipart body is not framed as its boundary says")
        return Form(_in_utf8(tuple(self._fields)), tuple(self._files))

    def _pass_on(self, size: int) -> None:
        """What cannot be part of a delimiter any more belongs to the part that is being read."""
        if size <= 0:
            return
        if self._part is None:
            raise UnreadableBody("the multipart body is not framed as its boundary says")
        self._kept += self._part.take(bytes(self._waiting[:size]))
        if self._kept > MAX_FIELD_BYTES:
            raise UnreadableBody(f"the fields of the multipart body hold more than {MAX_FIELD_BYTES} bytes")
        del self._waiting[:size]

    def _end_part(self) -> None:
        part = self._part
        if part is None:
            return
        if not part.in_content:
            raise UnreadableBody("a part of the multipart body has no head")
        if len(self._fields) + len(self._files) >= MAX_FIELDS:
            raise UnreadableBody(f"the multipart body holds more than {MAX_FIELDS} fields")
        if part.filename == "" and part.size:
            raise UnreadableBody("a file of the multipart body has no name: a field, for some servers")
        if part.filename is not None:
            digest = part.digest.hexdigest()
            self._files.append(Upload(part.name, part.filename, part.media_type, part.size, digest))
            return
        if part.media_type not in ("", "text/plain"):
            raise UnreadableBody("a field of the multipart body has a media type: a file, for some servers")
        try:
            self._fields.append((part.name, part.value.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise UnreadableBody("a name or a field of the multipart body is not UTF-8") from error


class _Part:
    """One part while it is read."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.in_content = False
        self.name = ""
        self.filename: str | None = None
        self.media_type = ""
        self.value = bytearray()
        self.digest = hashlib.sha256()
        self.size = 0

    def take(self, data: bytes) -> int:
        """Returns how many more bytes are kept."""
        if not self.in_content:
            searched = max(len(self.head) - 3, 0)
            self.head += data
            end = self.head.find(b"\r\n\r\n", searched)
            if end < 0:
                return len(data)
            data = bytes(self.head[end + 4 :])
            self._read_head(bytes(self.head[:end]))
        self.size += len(data)
        if self.filename is not None:
            self.digest.update(data)
            return 0
        self.value += data
        return len(data)

    def _read_head(self, head: bytes) -> None:
        if not head.startswith(b"\r\n"):
            raise UnreadableBody("a part of the multipart body has no head")
        try:
            self.name, self.filename, self.media_type = _part_head(head[2:].decode("utf-8"))
        except UnicodeDecodeError as error:
            raise UnreadableBody("a name or a field of the multipart body is not UTF-8") from error
        self.in_content = True


def _part_head(head: str) -> tuple[str, str | None, str]:
    """Field name, file name (None for a field) and media type of one part."""
    headers: dict[str, str] = {}
    for line in head.split("\r\n"):
        match = _PART_HEADER.fullmatch(line)
        if match is None or match[1].lower() in headers:
            raise UnreadableBody("the head of a part of the multipart body is broken, or repeats a header")
        headers[match[1].lower()] = match[2].strip(" \t")
    disposition = _DISPOSITION.fullmatch(headers.get("content-disposition", ""))
    if disposition is None:
        raise UnreadableBody("a part of the multipart body is not form data with one name")
    if headers.get("content-transfer-encoding", "").lower() not in _PLAIN_ENCODINGS:
        raise UnreadableBody("a part of the multipart body is in a transfer encoding")
    kind = headers.get("content-type", "").lower()
    if kind.startswith("multipart/") or not is_utf8(kind):
        raise UnreadableBody("a part of the multipart body is itself multipart, or not UTF-8")
    return disposition[1], disposition[2], kind.partition(";")[0].strip()

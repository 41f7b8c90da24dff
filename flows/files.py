"""A file in a payload: what is approved of it, and how a flow asks for its bytes.

The material is what the wire can show: digest, name, type and size. Where the file lay on somebody's disk is no part of
it. Reads no file: the executor keeps the bytes and hands them out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from flows.bodies import Upload

MAX_FILE_BYTES = 48 * 1024 * 1024
"""The driver hands a file to the browser in one message, and takes no more than 50 MB that way."""


class PayloadFile(BaseModel):
    """A file by its content. `size` in bytes, `sha256` in lower-case hex, `media_type` without parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: str = Field(min_length=1, max_length=200)
    media_type: str = Field(pattern=r"^[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+$")
    size: int = Field(ge=0, le=MAX_FILE_BYTES)

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        """Browsers write quotes and line ends in file names as escapes, and cut what stands before a slash."""
        if re.search(r'["\\/:]', name) or any(unicodedata.category(one) == "Cc" for one in name) or name in (".", ".."):
            raise ValueError("the file's name holds a quote, a slash, a colon or a control character")
        return name


FileBytes = Callable[[PayloadFile], Awaitable[bytes]]
"""Gives the approved bytes of a file. Raises where they are not kept any more, or not the same."""


def material_of(upload: Upload | None) -> dict[str, Any] | None:
    """A file on the wire in the form of the material. None for a field without a file, and for one left empty."""
    if upload is None or (not upload.name and not upload.size):
        return None
    return {"sha256": upload.sha256, "name": upload.name, "media_type": upload.media_type, "size": upload.size}

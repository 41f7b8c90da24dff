"""The DOM as one HTML file that shows what a reader saw: live values, child documents inside, nothing that runs or
loads.

`read` asks the page; `assemble` is text work for the worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evidence import html_rewriting
from evidence.redaction import Kind, Masked, Redacted, Redactor, Tally, merged

if TYPE_CHECKING:
    from evidence.page_reader import Document, PageReader

MEDIA_TYPE = "text/html; charset=utf-8"
MAXIMUM_SIZE = 20 * 1024 * 1024


async def read(reader: PageReader, *, seconds: float) -> tuple[Document, ...]:
    """The readable documents of the page. Raises `TooLarge` above `MAXIMUM_SIZE` characters."""
    return await reader.documents(seconds=seconds, characters=MAXIMUM_SIZE)


def assemble(documents: Sequence[Document], redactor: Redactor) -> Redacted[bytes]:
    """One document with the others in its frames; masked, inert. Bytes may exceed `MAXIMUM_SIZE`: the caller
    decides."""
    tally = Tally()
    in_page = [
        Masked(Kind(kind), where, count)
        for document in documents
        for key, count in document.masked.items()
        for kind, _, where in [key.partition(" ")]
    ]

    def whole(index: int) -> str:
        document = documents[index]
        inside = [whole(child) for child in document.children]
        return html_rewriting.rewrite(document.html, redactor, tally, inside, document.base)

    return Redacted(whole(0).encode("utf-8", "replace"), merged(in_page, tally.masked()))

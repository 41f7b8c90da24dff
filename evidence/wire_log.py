"""The wire log as a piece of evidence (D1): one JSON object a line, secrets masked. Blocks: call it from a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rfc8785

from evidence.records import Item, ItemKind
from evidence.redaction import Redactor, merged
from evidence.store import EvidenceStore

MEDIA_TYPE = "application/x-ndjson"


def store_wire_log(lines: Sequence[Mapping[str, Any]], store: EvidenceStore, redactor: Redactor) -> Item:
    """Mask and store the lines in their order; see `Redactor.record` for the keys it knows.

    Raises `EvidenceError` (`StoreFull` among them) and, for a value that JSON cannot hold, ValueError.
    """
    done = [redactor.record(line) for line in lines]
    try:
        data = b"".join(rfc8785.dumps(line.value) + b"\n" for line in done)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(f"a wire log line holds a value that JSON cannot: {error}") from error
    blob = store.put(data, media_type=MEDIA_TYPE)
    masked = merged(*(line.masked for line in done))
    return Item(ItemKind.WIRE_LOG, blob.sha256, blob.size, blob.media_type, masked)

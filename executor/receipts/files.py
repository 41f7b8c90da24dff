"""Write a receipt down, as JSON and as text. The only part of the receipts that touches a disk."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from executor.receipts.schema import Receipt
from executor.receipts.text import render_text


@dataclass(frozen=True, slots=True)
class ReceiptPaths:
    json: Path
    text: Path


def paths_of(receipt: Receipt, folder: Path) -> ReceiptPaths:
    """Where a receipt is written."""
    return ReceiptPaths(folder / f"{receipt.ids.operation}.json", folder / f"{receipt.ids.operation}.txt")


def write_receipt(receipt: Receipt, folder: Path) -> ReceiptPaths:
    """Write `OPERATION.json` and `OPERATION.txt` into `folder` (made with mode 0700), each whole or not at all, mode
    0600. A later receipt of the same operation replaces the earlier one, whoever else writes at the same time. Raises
    OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = paths_of(receipt, folder)
    _replace(paths.json, receipt.model_dump_json(indent=2) + "\n")
    _replace(paths.text, render_text(receipt))
    return paths


def _replace(place: Path, text: str) -> None:
    # A name of its own for every writer: a run and a recovery may write the receipt of one operation side by side.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

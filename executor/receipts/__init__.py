"""Receipts: what was authorized, attempted and observed, what stays unknown, and what may be done about it (E1)."""

from __future__ import annotations

from executor.receipts.building import DEFAULT_OWNER, RESPOND_WITHIN, Handover, build_receipt
from executor.receipts.files import ReceiptPaths, paths_of, write_receipt
from executor.receipts.guidance import ActionPermitted, ActionProhibited, Detector, Standing
from executor.receipts.schema import Receipt, schema_json
from executor.receipts.text import render_text

__all__ = [
    "DEFAULT_OWNER",
    "RESPOND_WITHIN",
    "ActionPermitted",
    "ActionProhibited",
    "Detector",
    "Handover",
    "Receipt",
    "ReceiptPaths",
    "Standing",
    "build_receipt",
    "paths_of",
    "render_text",
    "schema_json",
    "write_receipt",
]

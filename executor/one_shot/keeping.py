"""Keeping a run's evidence: captures into the manifest, and the manifest durable beside links that a person can open.

Only the runner calls it; it decides nothing. `StoreFull` passes through, so that a full disk stops a run before the
claim; after the claim the caller records it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Page

from evidence.capture import capture
from evidence.manifest import Manifest, save_manifest
from evidence.records import Capture, Item, ItemKind, Point, Target
from evidence.store import EvidenceError
from evidence.wire_log import store_wire_log
from executor.model.ending import EvidenceKept, Picture
from executor.one_shot.run import Run

_EXTENSIONS = {"image/webp": ".webp", "image/png": ".png"}


def operation_folder(run: Run) -> Path:
    return run.services.settings.evidence_folder / "operations" / run.operation.id / run.id


async def keep(
    run: Run, page: Page, point: Point, *, label: str = "", target: Target | None = None, by_gate: bool = False
) -> Capture:
    """Capture what a page shows and add it to the run's manifest. Raises `StoreFull`."""
    kept = await capture(
        page,
        point,
        store=run.services.store,
        redactor=run.redactor,
        label=label,
        target=target,
        answered_by_interlock=by_gate,
        total_timeout=run.services.settings.evidence_s,
    )
    run.manifest = _manifest(run).with_capture(kept)
    return kept


async def make_durable(run: Run) -> str:
    """Write the manifest and its links; returns the manifest's digest. Raises `EvidenceError`."""
    manifest = _manifest(run)
    await asyncio.to_thread(_write, operation_folder(run), manifest, run)
    return manifest.digest()


async def keep_wire_log(run: Run) -> None:
    """Store the wire log of the composer's context and of the looks. Raises `EvidenceError`."""
    lines = [json.loads(line) for log in (run.log, run.look_log) for line in log.as_json_lines().splitlines()]
    item = await asyncio.to_thread(store_wire_log, lines, run.services.store, run.redactor)
    run.manifest = _manifest(run).with_wire_log(item)


async def keep_answer(run: Run, status: int, headers: Sequence[tuple[str, str]], body: bytes, media_type: str) -> str:
    """Store the answer to the effect request, secrets masked; returns its hash. Raises `EvidenceError`."""

    def store() -> str:
        head = "".join(f"{name}: {value}\r\n" for name, value in run.redactor.headers(headers).value)
        masked = run.redactor.body(body, media_type).value
        data = f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + masked
        return run.services.store.put(data, media_type="message/http").sha256

    return await asyncio.to_thread(store)


def summary(run: Run) -> EvidenceKept | None:
    """What the receipt says about the evidence."""
    manifest = run.manifest
    if manifest is None:
        return None
    folder = operation_folder(run)
    home = run.services.settings.home
    pictures = tuple(
        Picture(
            point=entry.point.value,
            label=entry.label,
            sha256=item.sha256,
            path=str((folder / _name(number, entry, item)).relative_to(home)),
            note=item.note,
        )
        for number, entry in enumerate(manifest.entries, start=1)
        if (item := entry.item(ItemKind.SCREENSHOT)) is not None
    )
    gaps = tuple(
        f"{entry.point.value}{f' {entry.label}' if entry.label else ''}: {gap.step} ({gap.reason.value})"
        for entry in manifest.entries
        for gap in entry.gaps
    )
    return EvidenceKept(
        manifest=str((folder / "manifest.json").relative_to(home)),
        manifest_sha256=manifest.digest(),
        pictures=pictures,
        items=sum(1 for _ in manifest.items()),
        gaps=gaps,
    )


def _manifest(run: Run) -> Manifest:
    return run.manifest or Manifest(operation_id=run.operation.id)


def _write(folder: Path, manifest: Manifest, run: Run) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number, entry in enumerate(manifest.entries, start=1):
            item = entry.item(ItemKind.SCREENSHOT)
            if item is None:
                continue
            link = folder / _name(number, entry, item)
            if not link.exists():
                _link(run.services.store.path(item.sha256), link)
    except OSError as error:
        raise EvidenceError(f"cannot write to {folder}: {error}") from error
    save_manifest(folder, manifest)


def _link(blob: Path, link: Path) -> None:
    """A name for people beside the blob, whose own name is its hash. A file system without links gets a copy."""
    try:
        os.link(blob, link)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(blob, link)


def _name(number: int, entry: Capture, item: Item) -> str:
    label = re.sub(r"[^a-z0-9]+", "-", entry.label.lower()).strip("-")
    parts = [f"{number:02}", entry.point.value, *([label] if label else [])]
    return "-".join(parts) + _EXTENSIONS.get(item.media_type, "")

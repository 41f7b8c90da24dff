"""Is the evidence still what was stored? Offline, from a manifest and a store alone (D3).

Not checked here: that the manifest is the one the operation's record names (give its digest for that), who made it,
and whether captures are missing from it that were once taken; the signed receipt answers those.
"""

from __future__ import annotations

from dataclasses import dataclass

from evidence.manifest import Manifest
from evidence.store import EvidenceAltered, EvidenceError, EvidenceMissing, EvidenceStore


@dataclass(frozen=True)
class Report:
    """Hashes of items, each once, in manifest order. `not_checked` pairs a hash with the reason it could not be read.

    `manifest_matches` compares the manifest's digest with the expected one; None when no digest was given.
    """

    checked: tuple[str, ...]
    missing: tuple[str, ...]
    altered: tuple[str, ...]
    not_checked: tuple[tuple[str, str], ...]
    manifest_matches: bool | None = None

    @property
    def sound(self) -> bool:
        """Everything listed was read and is unaltered, and the manifest is not known to be another one."""
        return not (self.missing or self.altered or self.not_checked) and self.manifest_matches is not False


def verify(manifest: Manifest, store: EvidenceStore, *, digest: str | None = None) -> Report:
    """Read and hash every listed item. `digest` is the manifest's, from the receipt or the ledger. Never raises for
    what it finds."""
    checked: list[str] = []
    missing: list[str] = []
    altered: list[str] = []
    not_checked: list[tuple[str, str]] = []
    sizes = {item.sha256: item.size for item in manifest.items()}
    for sha256, size in sizes.items():
        try:
            data = store.get(sha256)
        except EvidenceMissing:
            missing.append(sha256)
        except EvidenceAltered:
            altered.append(sha256)
        except (EvidenceError, OSError) as error:
            not_checked.append((sha256, str(error)))
        else:
            (checked if len(data) == size else altered).append(sha256)
    matches = None if digest is None else digest == manifest.digest()
    return Report(tuple(checked), tuple(missing), tuple(altered), tuple(not_checked), matches)

"""Checks, without a network, that requirements.lock still answers to pyproject.toml.

Every dependency (those for development included) is pinned to one version that it allows, every pin has a hash,
and the file names no index, no address and no local path. It does not resolve: whether the pins agree among
themselves is for `make lock` and for pip to say.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;]+)(?:\s*;.*)?")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def problems(pyproject: str, lock: str) -> list[str]:
    """What is wrong with the lock, one sentence each; empty when it is fresh."""
    found: list[str] = []
    pins: dict[str, list[str]] = {}
    for entry in lock.replace("\\\n", " ").splitlines():
        requirement, *hashes = re.split(r"\s+(?=--hash=)", entry.strip())
        if not requirement or requirement.startswith("#"):
            continue
        pin = _PIN.fullmatch(requirement.strip())
        if pin is None:
            found.append(f"not a pinned package: {requirement}")
            continue
        pins.setdefault(canonicalize_name(pin["name"]), []).append(pin["version"])
        if not hashes or not all(_HASH.fullmatch(each.strip()) for each in hashes):
            found.append(f"{pin['name']} {pin['version']} has no hash, or one that is not SHA-256")
    project = tomllib.loads(pyproject)["project"]
    wanted = [*project.get("dependencies", [])]
    for extra in project.get("optional-dependencies", {}).values():
        wanted += extra
    for requirement in map(Requirement, wanted):
        versions = pins.get(canonicalize_name(requirement.name), [])
        if not versions:
            found.append(f"{requirement} is not in the lock")
        found += [
            f"{requirement} is locked at {version}"
            for version in versions
            if not requirement.specifier.contains(version, prereleases=True)
        ]
    return found


def main(root: Path) -> int:
    found = problems(
        root.joinpath("pyproject.toml").read_text(encoding="utf-8"),
        root.joinpath("requirements.lock").read_text(encoding="utf-8"),
    )
    for problem in found:
        print(f"requirements.lock: {problem}")
    if found:
        print("Renew it with `make lock`.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))

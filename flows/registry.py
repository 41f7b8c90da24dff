"""Which flows there are: by the entry points of installed distributions, and by file.

A flow is loaded only when it is asked for, so a broken one never hides the others, and is checked completely before it
is handed out. This module reads distributions and files. It may not install anything, and keeps no flow from one
process to the next.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from flows.declarations import problem
from flows.flow import Flow

GROUP = "interlock.flows"


class RegistryError(Exception):
    """A flow cannot be had; the message says why and what to do."""


class UnknownFlow(RegistryError):
    """No distribution registers a flow of that name, or there is no such file."""

    def __init__(self, message: str, *, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.suggestions = suggestions


class BrokenFlow(RegistryError):
    """The flow is there and cannot be used: its module does not import, or its declarations are not complete."""


@dataclass(frozen=True)
class Registry:
    """The flows that can be run. `sources` maps a name to the entry points that claim it (more than one is an error
    of the installation, reported when that flow is asked for)."""

    sources: Mapping[str, tuple[EntryPoint, ...]]
    _loaded: dict[str, Flow[Any]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def discover(cls) -> Self:
        """All entry points of the group `interlock.flows`. Imports nothing."""
        return cls.of(entry_points(group=GROUP))

    @classmethod
    def of(cls, points: Iterable[EntryPoint]) -> Self:
        """A registry over the given entry points. The same registration seen twice (an installed distribution and its
        build folder) counts once."""
        sources: dict[str, dict[str, EntryPoint]] = {}
        for point in points:
            sources.setdefault(point.name, {}).setdefault(point.value, point)
        return cls({name: tuple(by_value.values()) for name, by_value in sorted(sources.items())})

    def names(self) -> tuple[str, ...]:
        """The registered names in alphabetical order, those of broken flows included."""
        return tuple(self.sources)

    def canonical(self, reference: str) -> str:
        """The reference under which a later process, in another folder, finds the same flow: a registered name as it
        is, a file with its absolute path and class. Raises as `get` does."""
        flow = self.get(reference)
        if not _is_file(reference):
            return reference
        path, _ = _split(reference)
        return f"{path}:{type(flow).__name__}"

    def get(self, reference: str) -> Flow[Any]:
        """The flow of a registered name, of `path/to/file.py:Class`, or of `path/to/file.py` when that holds one flow.

        Raises `UnknownFlow` (with near names) and `BrokenFlow`. The same reference gives the same instance: flows keep
        no state.
        """
        if reference not in self._loaded:
            candidate = _from_file(reference) if _is_file(reference) else self._from_entry_point(reference)
            if fault := problem(candidate):
                raise BrokenFlow(f"The flow {reference} cannot be used: {_name(candidate)} {fault}.")
            assert isinstance(candidate, type)  # problem() made sure of this and the next
            assert issubclass(candidate, Flow)
            if not _is_file(reference) and candidate.name != reference:
                raise BrokenFlow(
                    f"The flow {reference} cannot be used: {_name(candidate)} calls itself {candidate.name!r}. "
                    "Register it under its own name."
                )
            self._loaded[reference] = candidate()
        return self._loaded[reference]

    def _from_entry_point(self, name: str) -> object:
        points = self.sources.get(name)
        if points is None:
            near = tuple(difflib.get_close_matches(name, self.names(), n=3, cutoff=0.5))
            hint = f"Did you mean {' or '.join(near)}?" if near else "See `interlock flows list`."
            raise UnknownFlow(f"There is no flow named {name!r}. {hint}", suggestions=near)
        if len(points) > 1:
            claims = " and ".join(f"{point.value} ({_distribution(point)})" for point in points)
            raise BrokenFlow(f"The flow {name} cannot be used: {claims} both register it. Uninstall one of them.")
        try:
            return points[0].load()
        except Exception as error:  # a foreign module may raise anything while it is imported; it is reported here
            raise BrokenFlow(
                f"The flow {name} cannot be used: {points[0].value} ({_distribution(points[0])}) does not import "
                f"({type(error).__name__}: {error})."
            ) from error


def _is_file(reference: str) -> bool:
    return reference.rpartition(":")[0].endswith(".py") or reference.endswith(".py")


def _split(reference: str) -> tuple[Path, str | None]:
    path, separator, name = reference.rpartition(":")
    if separator and path.endswith(".py"):
        return Path(path).expanduser().resolve(), name
    return Path(reference).expanduser().resolve(), None


def _from_file(reference: str) -> object:
    path, wanted = _split(reference)
    if not path.is_file():
        raise UnknownFlow(f"There is no file {path}, so no flow can be read from it.")
    module = _module(path)
    if wanted is not None:
        if not hasattr(module, wanted):
            near = tuple(difflib.get_close_matches(wanted, [flow.__name__ for flow in _flows_in(module)], n=3))
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UnknownFlow(f"{path.name} has no class {wanted}.{hint}", suggestions=near)
        return getattr(module, wanted)
    found = _flows_in(module)
    if not found:
        raise UnknownFlow(f"{path.name} holds no flow: no class in it derives from flows.flow.Flow.")
    if len(found) > 1:
        names = tuple(flow.__name__ for flow in found)
        raise UnknownFlow(f"{path.name} holds {len(found)} flows. Name one: {path.name}:{names[0]}", suggestions=names)
    return found[0]


def _flows_in(module: ModuleType) -> list[type[Flow[Any]]]:
    """Flow classes that the module itself defines, in the order of their definition."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Flow) and value.__module__ == module.__name__
    ]


def _module(path: Path) -> ModuleType:
    """The module of a file. Registered in `sys.modules`, as `inspect` needs it for the code digest, under a name that
    no import statement can reach."""
    name = f"interlock flow {hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py, for which Python has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the file may raise anything while it runs; it is reported here
        del sys.modules[name]
        raise BrokenFlow(f"{path.name} does not import ({type(error).__name__}: {error}).") from error
    return module


def _name(candidate: object) -> str:
    if isinstance(candidate, type):
        return candidate.__name__
    return f"what it names ({type(candidate).__name__})"


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "a distribution without a name"

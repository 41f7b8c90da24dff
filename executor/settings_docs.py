"""The table of settings in `docs/operating.md`, as Markdown made from `executor.settings`. `tools/docs.py` calls it.

It reads declarations and nothing else: the same table on every machine, whatever is set there.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from executor.model.docs import table
from executor.settings import TABLES, RunSettings, Settings

_FACTORIES: Mapping[str, str] = {
    "home": "`interlock` in the user's data folder",
    "key_folder": "`interlock` in the user's configuration folder",
}
"""Defaults that depend on the machine, in words. On Linux these are below `~/.local/share` and `~/.config`."""


def settings() -> str:
    """One row for each setting: name, environment variable, whether a flow or a site may have its own, default, and
    what it is for."""
    said = {**_docstrings(RunSettings), **_docstrings(Settings)}
    prefix = str(Settings.model_config["env_prefix"])
    rows = [
        (
            f"`{name}`",
            f"`{prefix}{name.upper()}`",
            "yes" if name in RunSettings.model_fields else "no",
            _default(name, field),
            meaning(name, field, said),
        )
        for name, field in Settings.model_fields.items()
        if name not in TABLES
    ]
    return table(("in `settings.toml`", "variable", "per flow and site", "default", "what it is for"), rows)


def meaning(name: str, field: FieldInfo, said: Mapping[str, str]) -> str:
    """What the setting's docstring says, or that of the function that makes its default."""
    factory: Any = field.default_factory
    text = said.get(name) or inspect.getdoc(factory) or ""
    return " ".join(text.split()).replace("None:", "When not set:", 1)


def _default(name: str, field: FieldInfo) -> str:
    if field.default_factory is not None:
        return _FACTORIES[name]
    match field.default:
        case None | ():
            return "none"
        case bool() as value:
            return "yes" if value else "no"
        case tuple() as values:
            return ", ".join(map(_number, values))
        case value:
            return _number(value)


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _docstrings(model: type[RunSettings]) -> Mapping[str, str]:
    """The text under each field: Python keeps no docstrings of attributes, so they are read from the source."""
    source = Path(inspect.getfile(model)).read_text(encoding="utf-8")
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == model.__name__
    )
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }

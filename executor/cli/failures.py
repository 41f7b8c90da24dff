"""From an error to one clear sentence and an exit code. Anything that is not known here is a defect (70)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from executor.errors import Exit, InterlockError


@dataclass(frozen=True, slots=True)
class Failure:
    sentence: str
    exit: int


def explain(error: BaseException) -> Failure:
    """What to tell a person about an error that ended a command."""
    if isinstance(error, InterlockError):
        return Failure(_sentence(error), error.exit)
    return _of_the_ledger(error) or _of_other_rooms(error) or _defect(error)


def _of_the_ledger(error: BaseException) -> Failure | None:
    from executor.ledger import ledger
    from executor.model.transitions import IllegalTransition

    if isinstance(error, ledger.NoSuchOperation | ledger.NoSuchStop | ledger.AmbiguousId):
        return Failure(_sentence(error), Exit.USAGE)
    refused = (
        ledger.AccountBusy,
        ledger.LeaseLost,
        ledger.NotAPerson,
        ledger.NotEligible,
        ledger.NotWhatWasSeen,
        ledger.VersionChanged,
        ledger.AttemptClosed,
        IllegalTransition,
    )
    if isinstance(error, refused):
        return Failure(_sentence(error), Exit.REFUSED)
    if isinstance(error, ledger.LedgerError):
        return Failure(_sentence(error), Exit.DEFECT)
    return None


def _of_other_rooms(error: BaseException) -> Failure | None:
    import tomllib

    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from evidence.store import EvidenceError
    from executor.browser.finding import BrowserMissing
    from executor.settings import Settings, flaw
    from flows.registry import RegistryError
    from playground.process import StartError

    if isinstance(error, RegistryError):
        return Failure(_sentence(error), Exit.USAGE)
    if isinstance(error, BrowserMissing | EvidenceError | StartError):
        return Failure(_sentence(error), Exit.DEFECT)
    if isinstance(error, ValidationError) and error.title == "Settings":
        found = "; ".join(
            flaw(one["loc"], one["msg"], one["type"], Settings.model_fields)
            for one in error.errors(include_url=False, include_input=False, include_context=False)
        )
        return Failure(f"The settings cannot be used: {found}.", Exit.USAGE)
    if isinstance(error, SettingsError):  # its message names the field and where the value is from, not the variable
        name = re.search(r'field "(\w+)"', str(error))
        variable = f"INTERLOCK_{name[1].upper()}" if name else "one of them"
        return Failure(
            f'The settings cannot be used: {variable} is not the JSON that it must be; a list is written ["one", 2].',
            Exit.USAGE,
        )
    if isinstance(error, tomllib.TOMLDecodeError):  # nothing else here reads TOML
        return Failure(f"The settings cannot be used: settings.toml in the home folder: {error}.", Exit.USAGE)
    return None


def _defect(error: BaseException) -> Failure:
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        said = error.strerror or type(error).__name__
        return Failure(
            f"The system refused something that is needed: {said}{where}. If that place is wrong, see INTERLOCK_HOME "
            "and INTERLOCK_KEY_FOLDER, and `interlock doctor`.",
            Exit.DEFECT,
        )
    return Failure(
        f"This is a defect: {type(error).__name__}: {error}. Nothing is submitted again because of it; look with "
        "`interlock list --unresolved`. INTERLOCK_DEBUG=1 shows where it happened.",
        Exit.DEFECT,
    )


def _sentence(error: BaseException) -> str:
    """The message; an error raised without one is explained by its docstring. A message that opens with an article or
    the like gets its capital letter; an id or a name at the front stays as it is."""
    said = str(error).strip() or (type(error).__doc__ or type(error).__name__).strip()
    return said[0].upper() + said[1:] if re.match(r"(?:an?|it|no|several|the|there|this) ", said) else said

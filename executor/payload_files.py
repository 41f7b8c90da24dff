"""The files of payloads: taken in when an intent is proposed, kept under their digest, and given out for the run.

What is approved is the digest, so what is given out is checked against it. No path of a taken file is kept anywhere.
Only whoever may read a path may have it taken in: this is for the person's own command line, and no interface for
proposers may pass a path on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import mimetypes
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from executor.errors import BadInput, NotReady
from flows.files import MAX_FILE_BYTES, PayloadFile

_PATH, _TYPE = "path", "media_type"


class PayloadFiles:
    """The kept files of one home folder, for this user alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, path: Path, media_type: str | None = None) -> PayloadFile:
        """Keep a copy of a file. Without a type, that of the name's ending. Raises `BadInput`."""
        try:
            if not path.is_file():
                raise BadInput(f"The payload names {path.name or 'a file'}, which is no file that can be read.")
            if path.stat().st_size > MAX_FILE_BYTES:
                raise BadInput(f"The file {path.name} is larger than {MAX_FILE_BYTES // 1024**2} MiB.")
            content = path.read_bytes()
        except OSError as error:
            raise BadInput(f"The file {path.name} of the payload cannot be read: {error.strerror}.") from error
        kind = media_type or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        digest = hashlib.sha256(content).hexdigest()
        try:
            file = PayloadFile(sha256=digest, name=path.name, media_type=kind, size=len(content))
        except ValidationError as error:
            said = "; ".join(str(one["msg"]) for one in error.errors(include_input=False, include_context=False))
            raise BadInput(f"The file {path.name!r} cannot be part of a payload: {said}.") from error
        self._keep(file, content)
        return file

    def take_all(self, payload: Mapping[str, Any], beside: Path) -> dict[str, Any]:
        """The payload with every `{"path": …}` (and, if need be, `"media_type": …`) in the place of a field replaced by
        the file that was taken in. Relative paths count from the folder `beside`. Raises `BadInput`."""
        taken: dict[str, Any] = {}
        for name, value in payload.items():
            if isinstance(value, Mapping) and _PATH in value and set(value) <= {_PATH, _TYPE}:
                if not all(isinstance(part, str) for part in value.values()):
                    raise BadInput(f"The file of the field {name} needs its path, and at most its type, as text.")
                taken[name] = self.take(beside / value[_PATH], value.get(_TYPE)).model_dump(mode="json")
            else:
                taken[name] = value
        return taken

    async def content(self, file: PayloadFile) -> bytes:
        """The approved bytes. Raises `NotReady`."""
        return await asyncio.to_thread(self._read, file)

    def check(self, payload: Mapping[str, Any]) -> None:
        """Whether every file of a parsed payload is kept. Raises `BadInput`, naming the field."""
        for name, file in _files_in(payload):
            try:
                self._read(file)
            except NotReady as error:
                raise BadInput(f"The file of the field {name} is not here: propose it by its path.") from error

    def kept(self, payload: Mapping[str, Any]) -> Mapping[str, Path]:
        """Where the files of a parsed payload lie, by field: for the person who is to approve them."""
        return {name: self._folder / file.sha256 for name, file in _files_in(payload)}

    def _read(self, file: PayloadFile) -> bytes:
        try:
            content = (self._folder / file.sha256).read_bytes()
        except OSError as error:
            raise NotReady(
                "A file of the payload is not kept any more. Propose the intent again by the path."
            ) from error
        if hashlib.sha256(content).hexdigest() != file.sha256 or len(content) != file.size:
            raise NotReady("A kept file of the payload was changed. Propose the intent again by the path.")
        return content

    def _keep(self, file: PayloadFile, content: bytes) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(NotReady):
                self._read(file)
                return
            descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".taking-")
            try:
                with os.fdopen(descriptor, "wb") as written:
                    written.write(content)
                    written.flush()
                    os.fsync(written.fileno())
                Path(name).replace(self._folder / file.sha256)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise NotReady(f"A file of the payload cannot be kept in {self._folder}: {error.strerror}.") from error


def _files_in(payload: Mapping[str, Any]) -> Iterator[tuple[str, PayloadFile]]:
    for name in payload:
        value = payload[name]
        if isinstance(value, Mapping) and set(value) == set(PayloadFile.model_fields):
            yield name, PayloadFile.model_validate(dict(value))

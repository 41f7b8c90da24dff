"""The worker's side: read a job, do it, write its result, until the parent closes the pipe or dies.

Started by `evidence.worker` as `python -m evidence.worker_process`; nothing else may import it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any, BinaryIO

from evidence.worker import read_frame, write_frame


def main() -> None:
    # Ctrl-C is for the parent to handle. When the parent ends, however it ends, the pipe ends too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, results = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a job prints must not get between two frames.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (frame := read_frame(jobs)) is not None:
        _answer(results, frame)


def _answer(results: BinaryIO, frame: bytes) -> None:
    answer: tuple[bool, Any]
    try:
        job, args, kwargs = pickle.loads(frame)
        answer = True, job(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  it is raised again on the parent's side
        answer = False, error
    try:
        data = pickle.dumps(answer)
    except Exception as error:  # noqa: BLE001  an exception may hold what cannot be pickled; its text can
        data = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    write_frame(results, data)


if __name__ == "__main__":
    main()

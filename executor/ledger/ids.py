"""New identifiers: a prefix that says what it names, then 20 characters of lower-case Crockford base 32.

The first ten hold the milliseconds since the epoch, so identifiers sort by age as text; the last ten are 50 random
bits. The time comes from this machine and decides nothing.
"""

from __future__ import annotations

import secrets
import time
from typing import Literal

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

Prefix = Literal["op", "ap", "at", "st", "lg"]
"""Operation, approval, attempt, stop, ledger."""


def new_id(prefix: Prefix) -> str:
    number = (time.time_ns() // 1_000_000) << 50 | secrets.randbits(50)
    return f"{prefix}_" + "".join(ALPHABET[number >> shift & 31] for shift in range(95, -1, -5))

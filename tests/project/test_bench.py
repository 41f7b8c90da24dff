"""The benchmark runs and tells figures. Which ones is not a test's business: machines are noisy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("arguments", "protocol"),
    [
        ([], "http/1.1"),
        pytest.param(["--distance-ms", "20"], "h2", marks=pytest.mark.root),
    ],
)
def test_the_benchmark_measures_a_small_page_in_both_ways(arguments: list[str], protocol: str) -> None:
    contexts = "0" if arguments else "2"
    command = ["-m", "bench.gate", "--rounds", "1", "--scripts", "3", "--contexts", contexts, "--json", *arguments]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["protocols"]["plain"] == protocol
    assert all(figures[f"{who}_{when}_ms"] > 0 for who in ("plain", "gate") for when in ("cold", "warm"))
    far = 1000 * figures["pairs"][0]["plain"]["cold_s"] >= 60  # TCP, TLS and the page: three round trips of 20 ms
    assert far or not arguments
    if not arguments:
        assert figures["context_mb"]["plain"] > 1

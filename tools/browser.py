"""Set-up's own way to a browser: as `interlock browser install`, but working before the command line does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from executor.browser.finding import BrowserMissing, find_browser, install_browser


def main() -> int:
    configured = os.environ.get("INTERLOCK_BROWSER")
    if configured:
        try:
            browser = find_browser(Path(configured))
        except BrowserMissing as error:
            print(error, file=sys.stderr)
            return 1
        print(f"Browser: {browser.product} {browser.version} at {browser.path}, as INTERLOCK_BROWSER says.")
        return 0
    report = install_browser()
    for step in report.steps:
        print(step.sentence)
        if step.command is not None and not step.succeeded:
            print(f"  {step.command}")
    if report.browser is None:
        print(f"There is no browser yet. Run this, then make again:\n  {report.next_command}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

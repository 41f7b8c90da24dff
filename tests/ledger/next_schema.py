"""A program that is one revision ahead of this one: `next_schema.py URL FOLDER [STATEMENT]`.

Says "ready", waits for a line, opens the ledger and with it migrates it, and says whether that was its doing. With
STATEMENT it is killed when the migration is about to run one that begins like that ("COMMIT" for its commit).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from sqlalchemy import Engine, event

from executor.ledger import migrations
from executor.ledger.sql import open_ledger

NEXT = "9999"
REVISION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{migrations.SCHEMA}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("novelty", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE operations SET novelty = 'of ' || task")
    op.create_table("novelties", sa.Column("id", sa.Text(), primary_key=True))
'''


def step_ahead(folder: Path) -> None:
    """Make this process's program the next one."""
    shutil.copytree(migrations._PLACE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{NEXT}_next.py").write_text(REVISION)
    migrations._PLACE = folder
    migrations.KNOWN = (*migrations.KNOWN, NEXT)  # type: ignore[assignment]
    migrations.SCHEMA = NEXT


def die_at(statement: str) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def look(connection: object, cursor: object, said: str, *_: object) -> None:
        if said.strip().startswith(statement):
            die()

    if statement == "COMMIT":
        # Only the migration's: looking at the revision ends by COMMIT too.
        event.listen(Engine, "commit", lambda c: die() if c.get_execution_options().get("ledger_writes") else None)
    else:
        event.listen(Engine, "before_cursor_execute", look)


def main() -> None:
    url, folder, *statement = sys.argv[1:]
    step_ahead(Path(folder))
    did: list[bool] = []
    upgrade = migrations.upgrade
    migrations.upgrade = lambda engine: did.append(upgrade(engine)) or did[-1]
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    for one in statement:
        die_at(one)
    open_ledger(url).close_connections()
    print("migrated" if did == [True] else "found it so", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

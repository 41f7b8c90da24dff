"""The first schema: ledger, operations, approvals, attempts, events, accounts, stops."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_key", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_key", name=op.f("pk_accounts")),
    )
    op.create_table(
        "events",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("ledger_head", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "sequence", name=op.f("pk_events")),
        sa.UniqueConstraint("position", name=op.f("uq_events_position")),
    )
    op.create_table(
        "ledger",
        sa.Column("only_row", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.CheckConstraint("only_row = 1", name=op.f("ck_ledger_one_row")),
        sa.PrimaryKeyConstraint("only_row", name=op.f("pk_ledger")),
    )
    op.create_table(
        "operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("proposed_position", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("account_key", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("look_alike", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=True),
        sa.Column("flow_name", sa.Text(), nullable=False),
        sa.Column("flow_version", sa.Text(), nullable=False),
        sa.Column("flow_digest", sa.Text(), nullable=False),
        sa.Column("permission", sa.Text(), nullable=False),
        sa.Column("dispatch", sa.Text(), nullable=False),
        sa.Column("transmission", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("disposition", sa.Text(), nullable=False),
        sa.Column("meant", sa.Boolean(), nullable=False),
        sa.Column("proposed_by", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("deadline_us", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
        sa.UniqueConstraint("identity", name=op.f("uq_operations_identity")),
        sa.UniqueConstraint("proposed_position", name=op.f("uq_operations_proposed_position")),
    )
    op.create_index(op.f("ix_operations_account_key"), "operations", ["account_key"], unique=False)
    op.create_index(op.f("ix_operations_dispatch"), "operations", ["dispatch"], unique=False)
    op.create_index(op.f("ix_operations_look_alike"), "operations", ["look_alike"], unique=False)
    op.create_index(op.f("ix_operations_outcome"), "operations", ["outcome"], unique=False)
    op.create_index(op.f("ix_operations_slot"), "operations", ["slot"], unique=False)
    op.create_index(op.f("ix_operations_task"), "operations", ["task"], unique=False)
    op.create_table(
        "stops",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("flow", sa.Text(), nullable=True),
        sa.Column("account_key", sa.Text(), nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("lifted_us", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stops")),
    )
    op.create_index(op.f("ix_stops_lifted_us"), "stops", ["lifted_us"], unique=False)
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("flow_name", sa.Text(), nullable=False),
        sa.Column("flow_version", sa.Text(), nullable=False),
        sa.Column("flow_digest", sa.Text(), nullable=False),
        sa.Column("revoked_us", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("used >= 0 AND used <= attempts", name=op.f("ck_approvals_used_within_attempts")),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_approvals_operation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
        sa.UniqueConstraint("operation_id", "number", name=op.f("uq_approvals_operation_id_number")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("account_key", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("transmission", sa.Text(), nullable=False),
        sa.Column("claimed_us", sa.BigInteger(), nullable=False),
        sa.Column("gesture_us", sa.BigInteger(), nullable=True),
        sa.Column("exposed", sa.Boolean(), nullable=False),
        sa.Column("released_us", sa.BigInteger(), nullable=True),
        sa.Column("answered_us", sa.BigInteger(), nullable=True),
        sa.Column("closed_us", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("open_account", sa.Text(), nullable=True),
        sa.Column("release_slot", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["approval_id"], ["approvals.id"], name=op.f("fk_attempts_approval_id")),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_attempts_operation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("open_account", name=op.f("uq_attempts_open_account")),
        sa.UniqueConstraint("operation_id", "number", name=op.f("uq_attempts_operation_id_number")),
        sa.UniqueConstraint("release_slot", name=op.f("uq_attempts_release_slot")),
    )

"""What a restarted arbiter must know: the leases, whose they are, and the processes and pages behind them. SQLite, WAL."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from jupyter_vgpu.arbiter.tenants import ProcessRecord, Tenant
from jupyter_vgpu.native.control import Identity
from jupyter_vgpu.pool.model import Lease

_VERSION = 1
_LEASE = TypeAdapter(Lease)
_SCHEMA = """
CREATE TABLE leases (id TEXT PRIMARY KEY, token_hash BLOB NOT NULL UNIQUE, revision INTEGER NOT NULL, lease TEXT NOT NULL,
                     page_device INTEGER, page_inode INTEGER, holder_pid INTEGER, holder_started INTEGER,
                     active REAL NOT NULL, open_cells INTEGER) STRICT;
CREATE TABLE processes (lease_id TEXT NOT NULL REFERENCES leases(id) ON DELETE CASCADE, pid INTEGER NOT NULL, started INTEGER NOT NULL,
                        slot INTEGER, PRIMARY KEY (lease_id, pid)) STRICT;
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JournalEntry:
    lease: Lease
    token_hash: bytes
    page: Identity | None
    holder: ProcessRecord | None
    processes: tuple[ProcessRecord, ...]
    active: float
    """When the tenant was last reported active, and with how many open cells (None: nobody reports)."""
    open_cells: int | None


class Journal:
    """One writer: the arbiter that holds the lock of its directory. Every call is one transaction."""

    def __init__(self, path: Path):
        self._database = _open(path)

    def put(self, tenant: Tenant) -> None:
        """Writes the tenant's row, new or changed; its revision counts the writes. Its processes have rows of their own."""
        page, holder, activity = tenant.page_identity, tenant.holder, tenant.activity
        with self._database:
            self._database.execute(
                "INSERT INTO leases VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET revision = revision + 1, "
                "lease = excluded.lease, page_device = excluded.page_device, page_inode = excluded.page_inode, "
                "holder_pid = excluded.holder_pid, holder_started = excluded.holder_started, "
                "active = excluded.active, open_cells = excluded.open_cells",
                (
                    tenant.id,
                    tenant.token_hash,
                    _LEASE.dump_json(tenant.lease).decode(),
                    page and page.device,
                    page and page.inode,
                    holder and holder.record.pid,
                    holder and holder.record.started,
                    activity.since,
                    activity.open_cells,
                ),
            )

    def put_process(self, lease_id: str, process: ProcessRecord) -> None:
        with self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?)", (lease_id, process.pid, process.started, process.slot)
            )

    def remove_process(self, lease_id: str, pid: int) -> None:
        with self._database:
            self._database.execute("DELETE FROM processes WHERE lease_id = ? AND pid = ?", (lease_id, pid))

    def remove(self, lease_id: str) -> None:
        with self._database:
            self._database.execute("DELETE FROM leases WHERE id = ?", (lease_id,))

    def entries(self) -> Iterable[JournalEntry]:
        """All leases, oldest first. A row that this version cannot read is dropped with a line in the log."""
        rows = self._database.execute(
            "SELECT id, token_hash, lease, page_device, page_inode, holder_pid, holder_started, active, open_cells "
            "FROM leases ORDER BY rowid"
        ).fetchall()
        for lease_id, token_hash, text, device, inode, pid, started, active, open_cells in rows:
            try:
                lease = _LEASE.validate_json(text)
            except ValidationError as error:
                _log.error("lease %s in the journal cannot be read and is dropped: %s", lease_id, error)
                self.remove(lease_id)
                continue
            processes = self._database.execute("SELECT pid, started, slot FROM processes WHERE lease_id = ?", (lease_id,)).fetchall()
            yield JournalEntry(
                lease=lease,
                token_hash=token_hash,
                page=None if inode is None else Identity(device=device, inode=inode),
                holder=None if pid is None else ProcessRecord(pid=pid, started=started),
                processes=tuple(ProcessRecord(*row) for row in processes),
                active=active,
                open_cells=open_cells,
            )

    def close(self) -> None:
        self._database.close()


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = _connect(path)
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            return database
        database.close()
        if version == 0:
            return _create(path)
        reason = f"version {version}; this arbiter writes {_VERSION}"
    except sqlite3.DatabaseError as error:
        reason = str(error)
    # Starting without the old leases is better than not starting: their kernels go on under their pages' last limits.
    aside = path.with_name(path.name + ".unreadable")
    _log.error("the journal %s cannot be used (%s); it is moved to %s", path, reason, aside)
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(f"{path}{suffix}"):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return _create(path)


def _create(path: Path) -> sqlite3.Connection:
    database = _connect(path)
    with closing(database.cursor()) as cursor:
        cursor.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
    os.chmod(path, 0o600)
    return database


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    # The journal has to survive the arbiter, not the machine: no tenant survives that. So nothing waits for a disk.
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA foreign_keys = ON")
    return database

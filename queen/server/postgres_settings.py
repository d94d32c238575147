"""The settings of the embedded PostgreSQL, each with its reason."""

import sys
from dataclasses import dataclass
from pathlib import Path

_MIB = 1 << 20

_HEADER = """\
# Written anew by `queen serve` at every start: changes made here are lost.
# Own settings: ALTER SYSTEM SET name = value; they go to postgres/postgresql.auto.conf and win over this file.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of ``postgresql.conf``."""

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        quoted = self.value.replace("'", "''")
        return f"\n# {self.reason}\n{self.name} = '{quoted}'\n"


def configuration(*, max_connections: int, memory_bytes: int, socket_dir: Path, log_dir: Path) -> str:
    """The text of ``postgresql.conf``."""
    settings = (
        *_access(max_connections, socket_dir),
        *_memory(memory_bytes // _MIB),
        *_DURABILITY,
        *_CHECKPOINTS,
        *_PLANS_AND_VACUUM,
        *_log(log_dir),
    )
    return _HEADER + "".join(map(str, settings))


def _access(max_connections: int, socket_dir: Path) -> tuple[Setting, ...]:
    return (
        Setting("listen_addresses", "", "No network: whoever reaches the socket is trusted without a password."),
        Setting("unix_socket_directories", str(socket_dir), "In the data folder, or in a folder with a shorter path."),
        Setting("unix_socket_permissions", "0700", "The user who runs it, and root; for the same reason."),
        Setting("port", "5432", "Only a part of the socket's name; said here so that PGPORT cannot change it."),
        Setting("max_connections", str(max_connections), "The pools of all workers twice, as a reload overlaps them."),
    )


def _memory(memory_mib: int) -> tuple[Setting, ...]:
    shared = min(max(memory_mib // 8, 64), 1024)
    return (
        Setting("shared_buffers", f"{shared}MB", "An eighth of the memory: the hot end of a log is small."),
        Setting("effective_cache_size", f"{memory_mib // 2}MB", "What the planner may expect the system to cache."),
        Setting("wal_buffers", "16MB", "One segment: a flush of large messages fits without waiting for the disk."),
    )


_SYNC_METHOD = "syncfs" if sys.platform == "linux" else "fsync"

_DURABILITY = (
    Setting("fsync", "on", "A push that was answered survives a power cut."),
    Setting("synchronous_commit", "on", "The same; batches make many pushes share one flush of the log."),
    Setting("recovery_init_sync_method", _SYNC_METHOD, "After a crash, one call instead of one for each file."),
    Setting("full_page_writes", "on", "A page torn by a power cut is repaired from the log."),
)

_CHECKPOINTS = (
    Setting("checkpoint_timeout", "15min", "After a checkpoint the first change of each page logs all of it: be rare."),
    Setting("max_wal_size", "4GB", "Room for 15 minutes of pushes before a checkpoint comes early."),
    Setting("min_wal_size", "512MB", "Files of the log are used again instead of made anew under load."),
    Setting("checkpoint_completion_target", "0.9", "Spreads the writes of a checkpoint: pushes do not feel it."),
    Setting(
        "wal_compression",
        "off",
        "pglz, all that this build has: 40 % less log for random updates, no gain in speed.",
    ),
)

_PLANS_AND_VACUUM = (
    Setting("autovacuum_naptime", "10s", "Cursors are updated all the time: dead rows go before they cost anything."),
    Setting("autovacuum_vacuum_cost_limit", "2000", "Ten times the default: vacuum keeps up with a busy queue."),
    Setting("jit", "off", "Statements of a queue are short: compiling them takes longer than running them."),
    Setting("max_parallel_workers_per_gather", "0", "The same for parallel workers; also spares a small /dev/shm."),
    Setting("random_page_cost", "1.1", "Solid-state disks and cached indexes: a random page costs like the next one."),
)


def _log(log_dir: Path) -> tuple[Setting, ...]:
    return (
        Setting("timezone", "UTC", "Times mean the same everywhere."),
        Setting("log_timezone", "UTC", "The same, in the log."),
        Setting("logging_collector", "on", "The log goes to files, one for each day of the week."),
        Setting("log_directory", str(log_dir), "Beside the cluster, so that it can be read without entering it."),
        Setting("log_filename", "postgresql-%a.log", "The name has the day of the week,"),
        Setting("log_truncate_on_rotation", "on", "so that a file is begun anew after a week,"),
        Setting("log_rotation_age", "1d", "each day one,"),
        Setting("log_rotation_size", "0", "however large."),
        Setting("log_line_prefix", "%m [%p] %a ", "Time, process, application."),
        Setting("log_lock_waits", "on", "A lock waited for longer than a second is worth a line."),
    )

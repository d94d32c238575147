"""The settings of the embedded PostgreSQL, each with its reason."""

import sys
from dataclasses import dataclass
from pathlib import Path

_MIB = 1 << 20

_HEADER = (
    "# Written by `queen serve` at every start: changes made here are lost.\n# For your own settings use ALTER "
    "SYSTEM SET name = value: they go to postgres/postgresql.auto.conf and take precedence.\n"
)


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
        Setting("listen_addresses", "", "No network: everybody who can open the socket is trusted without a password."),
        Setting("unix_socket_directories", str(socket_dir), "In the data folder, or in a folder with a shorter path."),
        Setting("unix_socket_permissions", "0700", "Only the user who runs it, and root, for the same reason."),
        Setting("port", "5432", "Only part of the socket's name; set here so that PGPORT cannot change it."),
        Setting(
            "max_connections",
            str(max_connections),
            "Twice the pools of all workers: during a reload old and new workers overlap.",
        ),
    )


def _memory(memory_mib: int) -> tuple[Setting, ...]:
    shared = min(max(memory_mib // 8, 64), 1024)
    return (
        Setting("shared_buffers", f"{shared}MB", "An eighth of the memory: the recent part of a log is small."),
        Setting(
            "effective_cache_size",
            f"{memory_mib // 2}MB",
            "What the planner assumes for the cache of the operating system.",
        ),
        Setting("wal_buffers", "16MB", "One WAL segment: a batch of large messages fits without waiting for the disk."),
    )


_SYNC_METHOD = "syncfs" if sys.platform == "linux" else "fsync"

_DURABILITY = (
    Setting("fsync", "on", "An answered push survives a power failure."),
    Setting("synchronous_commit", "on", "The same; batching makes many pushes share one flush of the WAL."),
    Setting("recovery_init_sync_method", _SYNC_METHOD, "After a crash, one call instead of one per file."),
    Setting("full_page_writes", "on", "A page torn by a power failure is repaired from the WAL."),
)

_CHECKPOINTS = (
    Setting(
        "checkpoint_timeout",
        "15min",
        "After a checkpoint, the first change of a page writes the whole page to the WAL: few checkpoints.",
    ),
    Setting("max_wal_size", "4GB", "Room for 15 minutes of pushes between checkpoints."),
    Setting("min_wal_size", "512MB", "WAL files are reused instead of created under load."),
    Setting(
        "checkpoint_completion_target", "0.9", "Spreads the writes of a checkpoint, so that pushes do not slow down."
    ),
    Setting(
        "wal_compression",
        "off",
        "This build has pglz only: 40 % less WAL for random updates, no gain in speed.",
    ),
)

_PLANS_AND_VACUUM = (
    Setting("autovacuum_naptime", "10s", "Cursors are updated all the time: dead rows are removed early."),
    Setting("autovacuum_vacuum_cost_limit", "2000", "Ten times the default: vacuum keeps up with a busy queue."),
    Setting("jit", "off", "Statements of a queue are short: compiling them takes longer than running them."),
    Setting(
        "max_parallel_workers_per_gather",
        "0",
        "Short statements do not gain from parallel workers; also spares a small /dev/shm.",
    ),
    Setting(
        "random_page_cost", "1.1", "Solid-state disks and cached indexes: random reads cost as much as sequential ones."
    ),
)


def _log(log_dir: Path) -> tuple[Setting, ...]:
    return (
        Setting("timezone", "UTC", "All times are in UTC."),
        Setting("log_timezone", "UTC", "All times in the log are in UTC."),
        Setting("logging_collector", "on", "The log goes to files, one per day of the week."),
        Setting(
            "log_directory", str(log_dir), "Beside the cluster, so that it can be read without access to the cluster."
        ),
        Setting("log_filename", "postgresql-%a.log", "The name has the day of the week,"),
        Setting("log_truncate_on_rotation", "on", "so that a file is overwritten after a week;"),
        Setting("log_rotation_age", "1d", "a new file each day,"),
        Setting("log_rotation_size", "0", "of any size."),
        Setting("log_line_prefix", "%m [%p] %a ", "Time, process, application."),
        Setting("log_lock_waits", "on", "Logs waits for a lock of more than a second."),
    )

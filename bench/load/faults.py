"""What was broken during a run, as a journal of its own beside that of k6: `queen audit` lays it over the plots."""

from pathlib import Path

from queen_audit.journal.files import write_lines
from queen_audit.journal.schema import Call


def write(path: Path, run: str, agent: str, killed_ns: int) -> None:
    """Writes that PostgreSQL was killed at that time, in nanoseconds since 1970, during the run of the agent."""
    name, at = f"{agent}, faults", killed_ns // 1000
    killed = Call(run=run, agent=name, number=0, kind="fault", client="PostgreSQL killed", sent=at)
    write_lines(path, [killed, Call(run=run, agent=name, number=1, kind="end", sent=at)])

"""The SQL of procedure calls."""


def call(procedure: str, arguments: int) -> str:
    """The statement that calls a procedure."""
    parameters = ", ".join(f"${number}" for number in range(1, arguments + 1))
    return f"SELECT * FROM queen.{procedure}({parameters})"  # noqa: S608 - names of this package only

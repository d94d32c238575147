"""How a procedure is called."""


def call(procedure: str, arguments: int) -> str:
    """The statement that calls a procedure."""
    places = ", ".join(f"${place}" for place in range(1, arguments + 1))
    return f"SELECT * FROM queen.{procedure}({places})"  # noqa: S608 - names of this package only

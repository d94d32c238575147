"""Queen for Python: a message queue on PostgreSQL with checked guarantees.

The published client ``queen-mq`` installs a package of the same name, ``queen``, so that server and client each need an
environment of their own.
"""

from typing import NoReturn

#: By this name the command ``queen`` recognises the server's package (see ``queen_command``).
__distribution__ = "queen-for-python"


def __getattr__(name: str) -> NoReturn:
    """Explains the error to a program that expects the client's ``Queen`` here."""
    hint = (
        " The client is the distribution queen-mq: install it in an environment of its own." if name == "Queen" else ""
    )
    raise AttributeError(f"module 'queen' (the server, queen-for-python) has no attribute {name!r}.{hint}")

"""Queen for Python: a message queue on PostgreSQL that proves what it promises.

The published client ``queen-mq`` installs a package of the same name, ``queen``, so that server and client each need an
environment of their own.
"""

from typing import NoReturn

#: The mark by which the command ``queen`` knows that this file is still ours (see ``queen_command``).
__distribution__ = "queen-for-python"


def __getattr__(name: str) -> NoReturn:
    """Explains itself to a program that looks for the client's ``Queen`` here."""
    hint = (
        " The client is the distribution queen-mq: install it in an environment of its own." if name == "Queen" else ""
    )
    raise AttributeError(f"module 'queen' (the server, queen-for-python) has no attribute {name!r}.{hint}")

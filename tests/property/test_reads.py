"""Operations read from all databases, and change what is theirs."""

import re
from pathlib import Path

import queen.operations

#: Of one database, unless ``at``, ``everywhere`` or ``_named`` has chosen it.
_OF_ONE = re.compile(r"\bcontext\.(administration|database|cache)\b")


def test_no_operation_asks_only_the_first_of_several_databases() -> None:
    folder = Path(queen.operations.__file__).parent
    found = {path.name: _OF_ONE.findall(path.read_text()) for path in folder.glob("*.py")}
    assert {name: uses for name, uses in found.items() if uses} == {}

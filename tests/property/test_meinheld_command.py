"""``queen meinheld build`` says what it needs. That it builds: ``tox -e conformance-meinheld``."""

import pytest

from queen.cli import meinheld
from queen.system.errors import StartError
from tests.support.processes import run


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meinheld, "_NEEDED", ("pip", "no_such_package"))
    with pytest.raises(StartError, match="first install no_such_package: pip install no_such_package"):
        meinheld.build()


def test_the_command_is_there() -> None:
    shown = run("meinheld", "--help")
    assert shown.returncode == 0
    assert "build" in shown.stdout

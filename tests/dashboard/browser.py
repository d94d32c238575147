"""A real Chromium: that of QUEEN_TEST_BROWSER, one of this machine, or, for root on Debian, one that is installed now.

`python -m tests.dashboard.browser` installs it and says where it is.
"""

import os
import shutil
import subprocess
import sys

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PACKAGE = "chromium"
_NONE = """\
There is no Chromium here, and the tests of the dashboard need a real one. Do one of these:
  apt-get install chromium          (Debian, Ubuntu; as root the tests do it themselves)
  playwright install chromium       (where its download is reachable), then QUEEN_TEST_BROWSER=<path of the program>
  QUEEN_TEST_BROWSER=<path>         for a Chromium or Chrome that lies elsewhere"""


class NoBrowserError(Exception):
    """There is none, and none can be installed."""


def find_browser() -> str | None:
    """The path of a Chromium, if there is one."""
    given = os.environ.get("QUEEN_TEST_BROWSER")
    if given:
        return given
    return next(filter(None, map(shutil.which, _NAMES)), None)


def ensure_browser() -> str:
    """The path of a Chromium, which may be installed for it; raises NoBrowserError."""
    found = find_browser()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = find_browser()
    if found is None:
        raise NoBrowserError(_NONE)
    return found


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("update",), ("install", "-y", "--no-install-recommends", _PACKAGE)):
        subprocess.run(["apt-get", *command], env=environment, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        print(ensure_browser())
    except NoBrowserError as error:
        sys.exit(str(error))

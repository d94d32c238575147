"""A real Chromium: that of QUEEN_TEST_BROWSER, one of this machine, or one that apt-get installs now, for root."""

import os
import shutil
import subprocess

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PACKAGE = "chromium"
_NONE = (
    "the dashboard is not tested, because there is no Chromium: install one (apt-get install chromium; as "
    "root on Debian the tests try that), or set QUEEN_TEST_BROWSER to the path of a Chromium or Chrome"
)


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
    # Without a network it gives up soon.
    apt_get = ("apt-get", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20")
    for command in (("update",), ("install", "-y", "--no-install-recommends", _PACKAGE)):
        subprocess.run([*apt_get, *command], env=environment, check=False, stdout=subprocess.DEVNULL)

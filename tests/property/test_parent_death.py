"""A child ends with its parent, whatever it has inherited."""

import contextlib
import subprocess
import sys

import psutil

from tests.support.processes import ROOT, is_gone, wait_until

PARENT = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: None)  # as gunicorn's master, which only takes a note
parent = os.getpid()
if not os.fork():
    from queen.system.parent_death import die_with
    die_with(parent, signal.SIGTERM)
    print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


def test_a_child_that_has_inherited_a_handler_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    try:
        wait_until(lambda: is_gone(child), "the end of the child")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()

"""The documentation as a site, opened from a disk."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.processes import ROOT, clean_environment


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed here")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env=clean_environment(NO_MKDOCS_2_WARNING="1"), check=True)
    return folder


def test_the_site_is_searched_and_read_without_a_server(browser: Browser, site: Path) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("idempotent")
    found = page.locator(".md-search-result__item").first
    expect(found).to_contain_text("idempotent consumer", ignore_case=True)
    found.get_by_role("link").first.click()
    expect(page.locator("h1")).to_contain_text("idempotent")
    # Nothing is loaded from elsewhere.
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []

    page.goto((site / "routes.html").as_uri())
    page.get_by_role("link", name="List connected consumers of a group").click()
    expect(page.get_by_text("GET /api/v1/consumer-groups/{consumerGroup}/queues/{queue}/consumers")).to_be_visible()
    for name in ("how-to/go.html", "http/consumer-groups.html", "guarantees.html", "tutorial.html"):
        page.goto((site / name).as_uri())
        cut = "[...document.querySelectorAll('pre code')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert page.evaluate(cut) == 0, f"lines of code are cut: {name}"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    page.close()

"""The dashboard without a browser: its files, how they are served, and what they may ask of the server."""

import re
from importlib.resources import files

import pytest

from queen.http.assets import files_below
from tests.support.api import Api
from tests.support.processes import ROOT

FOLDER = files("queen") / "dashboard"
ASSETS = dict(files_below(FOLDER))
OWN = {name: place.read_text(encoding="utf-8") for name, place in ASSETS.items() if not name.startswith("uplot/")}
SCRIPTS = {name: text for name, text in OWN.items() if name.endswith(".js")}


def operations() -> dict[str, tuple[str, str, str]]:
    """Method, path and level of what the dashboard calls, by the names of the contract."""
    found = re.findall(r'(\w+): operation\("(\w+)", "([^"]+)", "([^"]+)"\)', SCRIPTS["operations.js"])
    return {name: (method, path, level) for name, method, path, level in found}


def contract() -> dict[str, tuple[str, str, str]]:
    """The same of every operation, read from the lines of the contract."""
    found, path, method, name = {}, "", "", ""
    for line in (ROOT / "spec" / "openapi.yaml").read_text(encoding="utf-8").splitlines():
        if place := re.fullmatch(r"  (/\S*):", line):
            path = place[1]
        elif verb := re.fullmatch(r"    (get|post|put|delete):", line):
            method = verb[1].upper()
        elif operation := re.fullmatch(r"      operationId: (\w+)", line):
            name = operation[1]
        elif level := re.fullmatch(r"      x-access-level: (\S+)", line):
            found[name] = method, path, level[1]
    return found


async def test_the_page_is_served_at_the_root_and_takes_everything_from_this_server(api: Api) -> None:
    page = await api.http.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    linked = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert {"dashboard/app.js", "dashboard/style.css"} <= set(linked)
    for link in linked:
        assert (await api.http.get(f"/{link}")).status_code == 200, link


async def test_the_policy_lets_nothing_in_from_elsewhere_and_no_text_become_a_script(api: Api) -> None:
    for path in ("/", "/dashboard/app.js"):
        headers = (await api.http.get(path)).headers
        policy = headers["content-security-policy"].split("; ")
        assert {
            "default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'none'",
            "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
        } <= set(policy)  # fmt: skip
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize("path", ["/", *(f"/dashboard/{name}" for name in sorted(ASSETS)), "/docs", "/docs/docs.js"])
async def test_a_file_is_sent_once_and_known_again_by_its_tag(api: Api, path: str) -> None:
    first = await api.http.get(path, headers={"Accept-Encoding": "identity"})
    packed = await api.http.get(path, headers={"Accept-Encoding": "gzip"})
    tag = first.headers["etag"]
    again = await api.http.get(path, headers={"If-None-Match": f'"other", {tag}'})
    changed = await api.http.get(path, headers={"If-None-Match": '"other"'})
    assert [each.status_code for each in (first, packed, again, changed)] == [200, 200, 304, 200]
    assert first.content == packed.content == changed.content
    assert packed.headers["content-encoding"] == "gzip"
    assert (again.content, again.headers["etag"]) == (b"", tag)
    assert {each.headers["cache-control"] for each in (first, packed, again)} == {"no-cache"}
    assert packed.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize("path", ["unknown.js", "..%2Fconfig.py", "../config.py", "uplot/LICENSE", "", "pages", "%ff"])
async def test_nothing_but_the_files_of_the_page_is_served(api: Api, path: str) -> None:
    assert (await api.http.get(f"/dashboard/{path}")).status_code in (400, 404)


def test_the_package_holds_the_page_and_the_licence_of_what_it_borrows() -> None:
    assert {"index.html", "app.js", "style.css", "uplot/uPlot.esm.js", "pages/overview.js"} <= ASSETS.keys()
    assert "Permission is hereby granted" in (FOLDER / "uplot" / "LICENSE").read_text(encoding="utf-8")


def test_every_operation_of_the_dashboard_is_in_the_contract_with_its_level() -> None:
    used = operations()
    assert len(used) > 30
    promised = contract()
    assert {name: promised.get(name) for name in used} == used


def test_every_operation_of_the_dashboard_is_used_and_nothing_else_is_fetched() -> None:
    text = "".join(SCRIPTS.values())
    named = set(re.findall(r"operations\.(\w+)", text)) - {"js"}
    assert named == operations().keys()
    ways_out = r"\bfetch\(|XMLHttpRequest|WebSocket\(|EventSource|sendBeacon"
    assert [name for name, script in SCRIPTS.items() if re.search(ways_out, script)] == ["api.js"]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_makes_markup_out_of_texts(name: str) -> None:
    dangerous = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|\.href ="
    )
    assert not re.findall(dangerous, SCRIPTS[name])


def test_the_token_is_kept_by_the_tab_alone() -> None:
    assert [name for name, script in SCRIPTS.items() if "sessionStorage" in script] == ["session.js"]
    assert [name for name, script in SCRIPTS.items() if "localStorage" in script] == ["theme.js"]
    assert not [name for name, script in SCRIPTS.items() if "document.cookie" in script]


def test_nothing_is_loaded_from_elsewhere() -> None:
    own = {name: text.replace("http://www.w3.org/2000/svg", "") for name, text in OWN.items()}
    assert not [name for name, text in own.items() if re.search(r"https?://|url\(|@import", text)]


def test_every_module_is_imported_and_every_import_is_there() -> None:
    found = set()
    for name, script in SCRIPTS.items():
        folder = name.rpartition("/")[0]
        for target in re.findall(r'from "([^"]+)"', script):
            above = folder.rpartition("/")[0] if target.startswith("../") else folder
            found.add("/".join(filter(None, [above, re.sub(r"^\.\.?/", "", target)])))
    assert found - ASSETS.keys() == set()
    assert SCRIPTS.keys() - found == {"app.js"}

"""Real answers of every operation are what the contract says."""

import json
from collections.abc import Iterator
from importlib.resources import files

import pytest

from tests.contract.contract import make_document
from tests.contract.recorded import settled
from tests.contract.tour import unvisited, visit
from tests.support.api import Api, open_client
from tests.support.processes import Server, open_folder, serving


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Server]:
    """A server of its own, because the tour switches modes of the whole installation."""
    with open_folder() as folder, serving(folder / "data", "--workers", "1") as running:
        yield running


async def test_every_operation_answers_as_the_contract_says(one_worker: Server) -> None:
    async with open_client(one_worker.port) as http:
        examples = await visit(http)
    assert unvisited(examples) == []
    recorded = json.loads((files("queen.http.openapi") / "examples.json").read_text(encoding="utf-8"))
    assert settled(recorded, examples) == recorded, "run `python -m tests.contract`"


async def test_the_served_document_is_the_contract(api: Api) -> None:
    response = await api.http.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == make_document()


async def test_the_page_and_its_files_are_served_compressed_or_not(api: Api) -> None:
    page = await api.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("docs.js", "swagger-ui-bundle.js", "swagger-ui.css"):
        packed = await api.http.get(f"/docs/{name}", headers={"Accept-Encoding": "gzip"})
        plain = await api.http.get(f"/docs/{name}", headers={"Accept-Encoding": "identity"})
        assert packed.content == plain.content
        assert "content-encoding" not in plain.headers
    assert (await api.http.get("/docs/unknown.js")).status_code == 404

"""`python -m tests.contract`: examples from a live server, and what is written from the sources of the contract.

Examples that are still right stay as they are (``recorded``). The rest is `spec/openapi.yaml`, and the table of
intended differences in `docs/compatibility.md`.
"""

import asyncio
import json

import yaml

from tests.contract.contract import make_document
from tests.contract.intended import PAGE, with_table
from tests.contract.recorded import settled
from tests.contract.tour import visit
from tests.support.api import open_client
from tests.support.processes import ROOT, open_folder, serving

EXAMPLES = ROOT / "queen" / "http" / "openapi" / "examples.json"
CONTRACT = ROOT / "spec" / "openapi.yaml"
HEAD = "# Written by `python -m tests.contract` from the operations in queen/operations (ADR 24, 52).\n"


class _Plain(yaml.SafeDumper):
    """Writes a value where it stands, however often it is used."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def rendered() -> str:
    """What `spec/openapi.yaml` is to hold."""
    return HEAD + yaml.dump(make_document(), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


async def _record(port: int) -> None:
    async with open_client(port) as http:
        examples = await visit(http)
    kept = settled(json.loads(EXAMPLES.read_text(encoding="utf-8")), examples)
    EXAMPLES.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with open_folder() as folder, serving(folder / "data", "--workers", "1") as server:
        asyncio.run(_record(server.port))
    CONTRACT.write_text(rendered(), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""``python -m tests.mutants``: runs them all, or those of some guarantees; ``--write`` writes the table."""

import argparse
import sys
import time

from queen_spec.guarantees import GUARANTEES
from tests.mutants.catalogue import MUTANTS
from tests.mutants.page import PAGE, render
from tests.mutants.run import Verdict, run
from tests.support.processes import ROOT


def main() -> int:
    """0 when all were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Deliberate faults, and who notices.")
    parser.add_argument("guarantees", nargs="*", metavar="G-…", choices=[[], *GUARANTEES], help="default: all")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}: the lines of those that are run")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not arguments.guarantees or mutant.guarantee in arguments.guarantees]
    began = time.monotonic()

    def tell(verdict: Verdict) -> None:
        fate = f"killed by {verdict.killer}" if verdict.killer else f"SURVIVED {verdict.text}"
        print(
            f"{time.monotonic() - began:6.0f} s  {verdict.mutant.guarantee}: {verdict.mutant.name}: {fate}", flush=True
        )

    verdicts = run(chosen, tell)
    survivors = [verdict for verdict in verdicts if not verdict.killer]
    print(f"{len(verdicts)} mutants, {len(survivors)} survived")
    if arguments.write:
        page = ROOT / PAGE
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(render(verdicts, before), encoding="utf-8")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

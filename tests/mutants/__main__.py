"""``python -m tests.mutants``: runs all mutants, a sample of them, or those of some guarantees."""

import argparse
import sys
import time
from collections.abc import Sequence

from spec.guarantees import GUARANTEES
from tests.mutants.catalogue import MUTANTS, sample
from tests.mutants.mutant import Mutant
from tests.mutants.page import PAGE, render
from tests.mutants.run import Verdict, run
from tests.support.processes import ROOT


def main() -> int:
    """0 when all were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Deliberate faults, and who notices.")
    parser.add_argument("guarantees", nargs="*", metavar="G-…", choices=[[], *GUARANTEES], help="default: all")
    parser.add_argument("--sample", action="store_true", help="run one mutant per area")
    parser.add_argument("--list", action="store_true", help="list the mutants instead of running them")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE} instead of running mutants")
    arguments = parser.parse_args()
    if arguments.write:
        (ROOT / PAGE).write_text(render(), encoding="utf-8")
        return 0
    mutants = sample() if arguments.sample else MUTANTS
    chosen = [mutant for mutant in mutants if not arguments.guarantees or mutant.guarantee in arguments.guarantees]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.guarantee}: {mutant.name} ({mutant.tests or 'queen verify'})")
        return 0
    return judge(chosen)


def judge(mutants: Sequence[Mutant]) -> int:
    """Runs mutants, and says of each who noticed it."""
    began = time.monotonic()

    def tell(verdict: Verdict) -> None:
        fate = f"killed by {verdict.killer}" if verdict.killer else f"SURVIVED {verdict.text}"
        print(
            f"{time.monotonic() - began:6.0f} s  {verdict.mutant.guarantee}: {verdict.mutant.name}: {fate}", flush=True
        )

    verdicts = run(mutants, tell)
    survivors = [verdict for verdict in verdicts if not verdict.killer]
    print(f"{len(verdicts)} mutants, {len(survivors)} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a mutant is: a replacement of text in a copy of the tree.

The text must be there exactly once, or the mutation says nothing any more and the meta-test fails.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one file."""

    path: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text of the file with the fault in it.

        Raises:
            ValueError: what is to be replaced is not there exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.path} holds this text {count} times instead of once: {self.old!r}")
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        """Changes the file."""
        path = root / self.path
        path.write_text(self.applied(path.read_text(encoding="utf-8")), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, and the guarantee that it breaks.

    Attributes:
        tests: where its checks are, when a black box cannot see the fault; else those of `queen verify` have to see it.
    """

    guarantee: str
    name: str
    edits: tuple[Edit, ...]
    tests: str = ""


def mutant(guarantee: str, name: str, *edits: tuple[str, str, str], tests: str = "") -> Mutant:
    """One fault, by its edits: path, text, and what stands in its place."""
    return Mutant(guarantee, name, tuple(Edit(*edit) for edit in edits), tests)

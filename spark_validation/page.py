"""One self-contained HTML page: the frame and the style of every report."""

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c2330;
  background: #fff }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #dde2ea; vertical-align: top }
.valid { color: #157f3b } .invalid { color: #c0262d; font-weight: 600 } .unknown { color: #8a6d00 }
code { font-size: 13px } svg { width: 100%; max-width: 48rem; height: auto }
figure { margin: 1.5rem 0 } figcaption { font-weight: 600 } details { margin: .3rem 0 }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 0 1.5rem }
.plots figure { margin: .6rem 0 } .legend { font-size: 13px; min-height: 1.4em } .legend span { margin-right: .8rem }
.figures td:first-child { white-space: nowrap } small { color: #5b6575; font-weight: 400 }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums } iframe { width: 100%; border: 0 }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A page of these parts, which are HTML."""
    meta = '<meta charset=utf-8><meta name=viewport content="width=device-width">'
    head = f"<!doctype html><html lang=en>{meta}<title>{escape(title)}</title><style>{_STYLE}</style>"
    return head + "<body>" + "".join(parts) + "</body></html>\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table of plain texts; the first columns are words, the others figures."""
    marks = ["" if number < texts else " class=figure" for number in range(len(columns))]
    head = "".join(f"<th{mark}>{escape(name)}" for mark, name in zip(marks, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(cell)}" for mark, cell in zip(marks, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table class=figures><tr>{head}</tr>{body}</table>"

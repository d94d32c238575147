"""What makes a site of this folder, beside mkdocs (`mkdocs.yml`, `tox -e docs`, ADR 33).

The pages are written to be read in the repository too, so they link to what lies beside this folder: sources, tests,
other pages. Here each such file becomes a page below `repository/`, and links lead there. The generated
references are made from what the server's own tests hold true: the HTTP interface from `spec/openapi.yaml`, audits from
the sources of `queen audit`.
"""

import ast
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
HOME = "README.md"
#: Below it stand the pages of files that are not in this folder.
REPOSITORY = "repository"
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {
    ".conf": "ini", ".env": "ini", ".js": "javascript", ".json": "json", ".py": "python", ".service": "ini",
    ".sh": "bash", ".sql": "sql", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
#: A line of a table or list that is shown as it stands.
_UNRENDERED = re.compile(r"^(?:<p>)?(\|.*\||- .*)", re.MULTILINE)
_PREFORMATTED = re.compile(r"<pre.*?</pre>", re.DOTALL)
LOG = logging.getLogger("mkdocs.hooks.site")
_HIDDEN = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the home page, the generated references, and a page for each file that another page links to."""
    add(files, config, "index.md", (ROOT / HOME).read_text(encoding="utf-8"))
    document = contract()
    add(files, config, "routes.md", routes(document))
    for tag in document["tags"]:
        add(files, config, f"http/{slug(tag['name'])}.md", topic(document, tag))
    add(files, config, "audits.md", audits())
    for page in named_in(config.nav):
        if page.startswith(f"{REPOSITORY}/"):
            add(files, config, page, shown(origin_of(page)))
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        source = waiting.pop()
        for target in outside(origin_of(source), files.src_uris[source].content_string):
            if files.get_file_from_path(page_of(target)) is None:
                add(files, config, page_of(target), shown(target))
                waiting.append(page_of(target))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Links to files become links to their pages."""
    origin = origin_of(page.file.src_uri)
    here = page.file.src_uri.rpartition("/")[0]

    def lead(match: re.Match[str]) -> str:
        target = page_of(resolved(origin, match[1]))
        if files.get_file_from_path(target) is None:
            return match[0]  # mkdocs complains about it
        return relpath(target, here or ".") + (match[2] or "")

    return outside_of_fences(markdown, lambda text: _LINK.sub(lead, text))


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Complains about what this Markdown, stricter than others, has left as it stood: a blank line is missing."""
    for problem in _UNRENDERED.findall(_PREFORMATTED.sub("", html)):
        LOG.warning("%s: a table or list without a blank line before it: %s", page.file.src_uri, problem)
    return html


def named_in(nav: object) -> Iterator[str]:
    """The pages of the navigation, however deep."""
    match nav:
        case str():
            yield nav
        case dict():
            yield from named_in(list(nav.values()))
        case list():
            for each in nav:
                yield from named_in(each)


def add(files: Files, config: MkDocsConfig, path: str, text: str) -> None:
    """One more page."""
    files.append(File.generated(config, path, content=text))


def outside_of_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The text with everything changed that is not code."""
    pieces, end = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, change(markdown[end:])])


# ---------------------------------------------------------------- files and their pages


def origin_of(page: str) -> str:
    """The file of the repository that a page shows; of a generated one, where it would be."""
    if page == "index.md":
        return HOME
    if not page.startswith(f"{REPOSITORY}/"):
        return f"{DOCS}/{page}"
    path = page.removeprefix(f"{REPOSITORY}/")
    source = path.removesuffix(".md")
    return source if (ROOT / source).is_file() else path


def page_of(path: str) -> str:
    """The page that shows a file of the repository."""
    if path == HOME:
        return "index.md"
    if path.startswith(f"{DOCS}/") and (path.endswith((".md", ".svg", ".png"))):
        return path.removeprefix(f"{DOCS}/")
    if (ROOT / path).is_dir():
        return f"{REPOSITORY}/{path}/README.md"
    return f"{REPOSITORY}/{path}" if path.endswith(".md") else f"{REPOSITORY}/{path}.md"


def resolved(origin: str, link: str) -> str:
    """The path in the repository that a link of a file means."""
    return normpath(f"{origin.rpartition('/')[0] or '.'}/{link}")


def outside(origin: str, markdown: str) -> Iterator[str]:
    """The files that a page links to and that are no pages by themselves."""
    for match in _LINK.finditer(_FENCE.sub("", markdown)):
        target = resolved(origin, match[1])
        if not page_of(target).startswith(f"{REPOSITORY}/") or not (ROOT / target).exists():
            continue
        yield target


def shown(path: str) -> str:
    """The text of a page for a file or folder of the repository."""
    place = ROOT / path
    if place.is_dir():
        return shown(f"{path}/README.md")
    if place.name == "README.md" and not place.exists():
        return listing(path.removesuffix("/README.md"), place.parent)
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    return f"{_HIDDEN}\n# {place.name}\n\n`{path}`\n\n```{_LANGUAGES.get(place.suffix, 'text')}\n{text.rstrip()}\n```\n"


def listing(path: str, place: Path) -> str:
    """A folder that says nothing of itself."""
    names = sorted(str(each.relative_to(place)) for each in place.rglob("*") if each.suffix in (*_LANGUAGES, ".md"))
    rows = [f"- [{name}]({name})" for name in names]
    return "\n".join([_HIDDEN, f"# {path}", "", *rows, ""])


# ---------------------------------------------------------------- generated references


def contract() -> dict[str, Any]:
    """The OpenAPI document, which tests hold against the route table, structs and real answers."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "spec" / "openapi.yaml").read_text(encoding="utf-8"))
    return found


def operations(document: dict[str, Any], tag: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and declaration of the operations of a topic."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and tag in operation.get("tags", ()):
                yield path, method.upper(), operation


def slug(text: str) -> str:
    """A heading as mkdocs writes it in an address."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text.lower())).strip("-")


def routes(document: dict[str, Any]) -> str:
    """Every operation with its level of access, by topic."""
    pieces = [
        "# HTTP interface",
        "",
        "Made from [the OpenAPI document](../spec/openapi.yaml), which tests hold against the route table, structs and",
        "real answers. A server shows it at `/docs`, and gives it at `/openapi.json`. What the operations mean is in",
        "[semantics](semantics.md); what clients of Queen MQ can rely on, in [compatibility](compatibility.md).",
    ]
    for tag in document["tags"]:
        page = f"http/{slug(tag['name'])}.md"
        pieces += ["", f"## {tag['name']}", "", prose(tag["description"], ""), ""]
        pieces += ["| method | path | level | |", "|---|---|---|---|"]
        pieces += [
            f"| `{method}` | `{path}` | {operation['x-access-level']} | "
            f"[{operation['summary']}]({page}#{slug(operation['summary'])}) |"
            for path, method, operation in operations(document, tag["name"])
        ]
    return "\n".join(pieces) + "\n"


def topic(document: dict[str, Any], tag: dict[str, str]) -> str:
    """The operations of a topic, each with parameters, body, answers and an example; then the structs that they use."""
    pieces = [f"# {tag['name']}", "", prose(tag["description"], "../"), "", "[All operations](../routes.md)"]
    used: list[str] = []
    for path, method, operation in operations(document, tag["name"]):
        pieces += ["", f"## {operation['summary']}", "", f"`{method} {path}` · level: {operation['x-access-level']}"]
        pieces += ["", prose(operation.get("description", ""), "../")]
        pieces += parameters(operation.get("parameters", ()))
        body = media(operation.get("requestBody", {}))
        if body:
            pieces += ["", f"**Body:** {kind(body['schema'], used)}", *example(body)]
        pieces += answers(document, operation["responses"], used)
    done: set[str] = set()
    while missing := [name for name in dict.fromkeys(used) if name not in done]:
        for name in missing:
            done.add(name)
            pieces += struct(name, document["components"]["schemas"][name], used)
    return "\n".join(pieces) + "\n"


def prose(text: str, up: str) -> str:
    """A description on one line; names of pages become links."""
    return re.sub(r"`docs/([\w-]+)\.md`", rf"[\1]({up}\1.md)", " ".join(text.split()))


def cell(text: str) -> str:
    """The same within a table."""
    return prose(text, "../").replace("|", "\\|")


def media(content: dict[str, Any]) -> dict[str, Any]:
    """What a body or answer holds, if that is declared."""
    return next((each for each in content.get("content", {}).values() if "schema" in each), {})


def parameters(declared: Iterable[dict[str, Any]]) -> list[str]:
    """The table of the parameters."""
    rows = [
        f"| `{each['name']}` | {each['in']}{', required' if each.get('required') else ''} | "
        f"{kind(each['schema'], [])} | {cell(each.get('description', ''))} |"
        for each in declared
    ]
    return ["", "| parameter | in | type | meaning |", "|---|---|---|---|", *rows] if rows else []


def answers(document: dict[str, Any], declared: dict[str, Any], used: list[str]) -> list[str]:
    """The table of the answers, and an example of the first that has one."""
    rows, shown_one = [], []
    for status, given in declared.items():
        answer = document["components"]["responses"][given["$ref"].rpartition("/")[2]] if "$ref" in given else given
        body = media(answer)
        rows.append(f"| {status} | {kind(body['schema'], used) if body else ''} | {cell(answer['description'])} |")
        shown_one = shown_one or example(body)
    return ["", "| answer | body | |", "|---|---|---|", *rows, *shown_one]


def example(body: dict[str, Any]) -> list[str]:
    """A fence with the example of a body, if it has one."""
    if "example" not in body or not isinstance(body["example"], dict | list):
        return []
    return ["", "```json", json.dumps(body["example"], indent=2, ensure_ascii=False), "```"]


def struct(name: str, schema: dict[str, Any], used: list[str]) -> list[str]:
    """A struct with its fields."""
    needed = schema.get("required", ())
    rows = [
        f"| `{field}` | {kind(each, used)}{'' if field in needed else ', optional'} | "
        f"{cell(each.get('description', ''))} |"
        for field, each in schema.get("properties", {}).items()
    ]
    table = ["", "| field | type | meaning |", "|---|---|---|", *rows] if rows else ["", kind(schema, used)]
    return ["", f"## {name}", "", prose(schema.get("description", ""), "../"), *table]


def kind(schema: dict[str, Any], used: list[str]) -> str:
    """The type of a value, in words; the structs in it are noted."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        used.append(name)
        return f"[{name}](#{slug(name)})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind(each, used) for each in schema[several]))
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}), used)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {kind(schema['additionalProperties'], used)}"
    return plain(schema)


def plain(schema: dict[str, Any]) -> str:
    """A plain type with its bounds, or the values that there are."""
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{each}`" for each in values)
    name = {"string": "text", None: "any JSON"}.get(schema.get("type"), str(schema.get("type")))
    name = {"date-time": "time", "uuid": "UUID"}.get(schema.get("format", ""), name)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{name}, {low:,} to {high:,}"
    if low is not None:
        return f"{name}, at least {low:,}"
    longest = schema.get("maxLength")
    return f"{name}, up to {longest:,} characters" if longest is not None else name


def audits() -> str:
    """What each audit reports, from their sources."""
    sys.path.insert(0, str(ROOT))
    from spec.guarantees import GUARANTEES, Level  # noqa: PLC0415 - the folder is no package of this environment
    from spec.page import scan  # noqa: PLC0415

    pieces = [
        "# Audits",
        "",
        "Made from the sources. How to run them: [audit](audit.md); what is promised: [guarantees](guarantees.md).",
    ]
    for check in scan(ROOT):
        if check.level is Level.AUDIT:
            path = f"{check.module.replace('.', '/')}.py"
            pieces += ["", f"## {check.name}", "", f"[`{path}`](../{path})", ""]
            pieces += [f"- {each}: {GUARANTEES[each].statement}" for each in check.ids]
            pieces += ["", docstring(ROOT / path, check.name)]
    return "\n".join(pieces) + "\n"


def docstring(path: Path, name: str) -> str:
    """What a function of a source file says of itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    raise LookupError(f"{path} has no function {name}")

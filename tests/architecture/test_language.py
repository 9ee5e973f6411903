"""The prose of the project reads well in a diff and avoids the turns of phrase that made engineers stumble."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "packages" / "README.md",
]
# Every module below these is held to the rules for docstrings and comments.
ROOMS = (
    "airflow_plugin",
    "benchmarks",
    "dagster_integration",
    "example_dags",
    "examples",
    "packages",
    "scripts",
    "src",
    "tests",
)
MODULES = [path for room in ROOMS for path in (sorted((ROOT / room).rglob("*.py")) or [ROOT / room])]

WIDTH = 120
OBLIQUE = {
    r"as you say": "as configured",
    r"(runs?|ran|running) out\b": "expire",
    r"\bbells?\b": "wake-up",
    r"(?<!dead )letters\b(?! of any script|:)": "dead letters",
    r"\btravels?\b": "be sent, be serialized",
    r"\b(is|are|was|were) told\b": "is reported",
    r"\btells\b(?! the source)": "reports",
    r"\b(lets?|letting) go of\b": "release",
    r"\bin hand\b": "claimed, current",
    r"\b(comes?|came|coming) back\b": "is redelivered, returns to the queue",
    r"\b(goes|go|went|going) on\b(?! request)": "continue",
    r"\blikewise\b": "say it again",
    r"\bbelongs? into\b": "belongs in",
    r"\bno way out\b": "does not help",
    r"\bsigns? of life\b": "heartbeat, keep-alive",
    r"\btwins?\b": "speculative attempt",
    r"\bunasked\b": "only on request",
    r"\blooks? after\b": "administer",
    r"\bin vain\b": "without a result",
    r"\bsomebody else\b|\bnobody's own\b|\bsomething else has\b": "name who: another process, another program",
    r"\bpass(ed|es)? over\b|\bpass(ed|es)? by\b": "skip, exclude",
    r"\bof (its|their|his) own account\b": "itself",
}
# A docstring that begins so names a thing instead of stating what the function does.
FRAGMENTS = {
    "A", "All", "An", "As", "At", "From", "How", "In", "None", "None,", "Of", "One", "The", "These", "Those", "What",
    "When", "Where", "Whether", "Which", "Who", "Whose",
}  # fmt: skip
SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`\"])")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside of code, with their numbers."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(":::"):  # what the reference is made from
            yield number, line


def without_code(text: str) -> str:
    """Remove inline code and the targets of links."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


def oblique(text: str) -> list[str]:
    """Return the banned phrases of a text, each with a plain one."""
    bare = without_code(text)
    return [f"{found[0]!r}: {plain}" for turn, plain in OBLIQUE.items() for found in re.finditer(turn, bare, re.I)]


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every module, class and function with its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def error_texts(tree: ast.Module) -> list[str]:
    """Return the texts of the errors that a module raises."""
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return [
        part.value
        for node in raised
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_pages_fit_the_width(page: Path) -> None:
    assert [n for n, line in prose(page) if len(line) > WIDTH and not line.startswith(("|", "#", "!["))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_line_of_a_page_holds_one_sentence(page: Path) -> None:
    def sentences(line: str) -> int:
        text = re.sub(r"`[^`]*`", "`", re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line))
        return len(SENTENCE_END.findall(re.sub(r"^\*\*[^*]+\*\* ", "", text))) + 1

    assert [n for n, line in prose(page) if not line.startswith(("|", "#")) and sentences(line) > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_avoid_oblique_phrases(page: Path) -> None:
    assert [(n, found) for n, line in prose(page) for found in oblique(line)] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_docstring_begins_with_a_whole_sentence(module: Path) -> None:
    bad = []
    for node, text in documented(ast.parse(module.read_text())):
        first = text.splitlines()[0]
        # The docstring of a test states a fact, so it may begin with any word.
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test_")
        fragment = re.match(r"\w+: ", first) or (is_function and first.split()[0] in FRAGMENTS)
        if fragment or not first.endswith(".") or not (first[0].isupper() or first[0] == "`") or len(first.split()) < 3:
            bad.append((getattr(node, "name", "module"), first))
    assert bad == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_comments_and_errors_avoid_oblique_phrases(module: Path) -> None:
    source = module.read_text()
    texts = [text for _, text in documented(ast.parse(source))]
    texts += [
        each.string for each in tokenize.generate_tokens(io.StringIO(source).readline) if each.type == tokenize.COMMENT
    ]
    texts += error_texts(ast.parse(source))
    assert [found for text in texts for found in oblique(" ".join(text.split()))] == []

"""Make the synchronous modules from the asyncio ones, so that each is written once.

Usage: sync.py [--check]     --check only compares, and fails when a file is out of date

The transform reads the syntax tree and changes the source text at the positions of its nodes and tokens, so comments
and layout survive; ruff puts imports and line breaks right afterwards. It

- removes `async` and `await`, and the parentheses that only `await` needed;
- renames what has a synchronous counterpart (`aclose`, `__aenter__`, `AsyncIterator`, …) and takes the part `asyncio`
  out of dotted names of this project and of redis-py;
- replaces `Awaitable[T]` by `T`, and `AsyncGenerator[T, S]` by `Generator[T, S, None]`;
- does the same to code between backticks in docstrings and comments, and to a string that is such a name;
- leaves out each statement, decorator or `except` whose first line ends in `# asyncio only`, of a `with` statement only
  the line itself: its body stays.

A module that still uses asyncio after that is an error: such code belongs in a module that is written twice.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUFF = Path(sys.executable).parent / "ruff"
PACKAGE = "src/sluicegate"
SOURCES = (
    *(
        f"{PACKAGE}/asyncio/{name}.py"
        for name in (
            *("administration", "batches", "consumer", "depths", "dispatch", "gateway", "heartbeat", "lease"),
            *("message_loop", "opening", "operation_runner", "publisher", "queue", "session", "steps"),
            *("streams/__init__",),
            *("streams/group", "streams/replay", "streams/stream"),
            *("worker/__init__", "worker/chain", "worker/slot_work", "worker/worker"),
        )
    ),
    *(f"{PACKAGE}/asyncio/jobs/{name}.py" for name in ("__init__", "handle", "lease", "queue")),
    f"{PACKAGE}/_redis/asyncio/connection_io.py",
)
NOTICE = "# Made from {source} by `make format`; edit there.\n"
MARK = "# asyncio only"
RENAMED = {
    "AsyncExitStack": "ExitStack",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "AsyncRetrying": "Retrying",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aiter": "iter",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
}
PACKAGES = frozenset({"redis", "sluicegate", "tests"})  # whose `asyncio` part has a synchronous counterpart beside it
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_DOTTED = re.compile(rf"(?:{'|'.join(sorted(PACKAGES))})(?:\.\w+)+")


class SyncError(Exception):
    """An asyncio module has something that this transform cannot make synchronous."""


def synchronous(source: str, where: str) -> str:
    """Return the synchronous text of an asyncio module.

    Args:
        source: its text.
        where: its path, for the notice and for errors.

    Raises:
        SyncError: it uses asyncio in a way that has no synchronous counterpart, or a mark stands at no statement.
    """
    try:
        text = Transform(source).result()
        _refuse_leftovers(text)
    except SyncError as error:
        raise SyncError(f"{where}: {error}") from None
    return _formatted(NOTICE.format(source=where) + text)


class Transform:
    """The changes that make one text synchronous, by their positions in it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tree = ast.parse(source)
        self._tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, str]] = []
        self._awaits = {self._start(node): node for node in ast.walk(self._tree) if isinstance(node, ast.Await)}
        self._docstrings = {self._start(node) for node in _docstrings(self._tree)}

    def result(self) -> str:
        """Return the changed text."""
        self._leave_out_marked()
        self._unwrap_types()
        for position, token in enumerate(self._tokens):
            self._change_token(position, token)
        text, end = [], 0
        for start, stop, new in sorted(set(self._edits), key=lambda edit: (edit[0], -edit[1])):
            if start < end:  # inside of something larger that is left out
                continue
            text += [self._source[end:start], new]
            end = stop
        return "".join([*text, self._source[end:]])

    # ------------------------------------------------------------------ marked lines

    def _leave_out_marked(self) -> None:
        marks = {
            token.start[0]
            for token in self._tokens
            if token.type == tokenize.COMMENT and token.string.strip().endswith(MARK)
        }
        for node in ast.walk(self._tree):
            for decorator in getattr(node, "decorator_list", ()):
                if decorator.end_lineno in marks:
                    marks.remove(decorator.end_lineno)
                    self._remove_lines(decorator.lineno, decorator.end_lineno)
            if isinstance(node, (ast.stmt, ast.ExceptHandler)):
                found = marks & set(self._head(node))
                marks -= found
                if found and isinstance(node, (ast.With, ast.AsyncWith)):
                    self._unwrap_block(node, max(found))
                elif found:
                    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
                    self._remove_lines(first, _end_line(node))
                    marks -= set(range(first, _end_line(node) + 1))
        if marks:
            raise SyncError(f"line {min(marks)}: {MARK!r} stands at no statement, decorator or except")

    def _head(self, node: ast.stmt | ast.ExceptHandler) -> Iterable[int]:
        """Return the lines whose mark applies to a statement: those before its body, else its first and last."""
        body = getattr(node, "body", None)
        if not body:
            return node.lineno, _end_line(node)
        first = min([body[0].lineno, *(each.lineno for each in getattr(body[0], "decorator_list", ()))])
        return range(node.lineno, max(first, node.lineno + 1))

    def _unwrap_block(self, node: ast.With | ast.AsyncWith, last_of_head: int) -> None:
        self._remove_lines(node.lineno, last_of_head)
        depth = node.body[0].col_offset - node.col_offset
        inside = self._lines_inside_strings()
        for line in range(last_of_head + 1, _end_line(node) + 1):
            if line not in inside and self._lines[line - 1].strip():
                self._edits.append((self._starts[line - 1], self._starts[line - 1] + depth, ""))

    def _lines_inside_strings(self) -> set[int]:
        return {
            line
            for token in self._tokens
            if token.type == tokenize.STRING
            for line in range(token.start[0] + 1, token.end[0] + 1)
        }

    def _remove_lines(self, first: int, last: int) -> None:
        self._edits.append((self._starts[first - 1], self._starts[last], ""))

    # ------------------------------------------------------------------ types

    def _unwrap_types(self) -> None:
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id == "Awaitable":
                self._edits.append((self._start(node), self._start(node.slice), ""))
                self._edits.append((self._end(node.slice), self._end(node), ""))
            elif node.value.id == "AsyncGenerator" and isinstance(node.slice, ast.Tuple):
                self._edits.append((self._end(node.slice), self._end(node.slice), ", None"))

    # ------------------------------------------------------------------ tokens

    def _change_token(self, position: int, token: tokenize.TokenInfo) -> None:
        start, end = self._offset(token.start), self._offset(token.end)
        if token.type == tokenize.COMMENT:
            self._replace(start, end, in_prose(token.string))
        elif token.type == tokenize.STRING:
            self._replace(start, end, in_prose(token.string) if start in self._docstrings else in_string(token.string))
        elif token.type == tokenize.NAME and token.string == "async":
            self._replace(start, self._offset(self._tokens[position + 1].start), "")
        elif token.type == tokenize.NAME and token.string == "await":
            self._replace(start, self._offset(self._tokens[position + 1].start), "")
            self._drop_parentheses(position, self._awaits.get(start))
        elif token.type == tokenize.NAME and token.string == "asyncio" and self._is_part_of_a_package(position):
            self._replace(self._offset(self._tokens[position - 1].start), end, "")
        elif token.type == tokenize.NAME and token.string in RENAMED:
            self._replace(start, end, RENAMED[token.string])

    def _drop_parentheses(self, position: int, node: ast.Await | None) -> None:
        """Drop the parentheses around an `await` that do not belong to a call or a definition."""
        if node is None:
            raise SyncError(f"line {self._tokens[position].start[0]}: await inside of an f-string")
        before, opening = self._tokens[position - 2], self._tokens[position - 1]
        end = self._end(node)
        closing = next(token for token in self._tokens[position:] if self._offset(token.start) >= end)
        is_call = before.string in (")", "]") or (before.type == tokenize.NAME and not keyword.iskeyword(before.string))
        if opening.string != "(" or closing.string != ")" or is_call or opening.end != self._tokens[position].start:
            return
        self._edits.append((self._offset(opening.start), self._offset(opening.end), ""))
        self._edits.append((self._offset(closing.start), self._offset(closing.end), ""))

    def _is_part_of_a_package(self, position: int) -> bool:
        """Return whether a name is a later part of a dotted name that begins with one of our packages."""
        tokens, first = self._tokens, position
        while first >= 2 and tokens[first - 1].string == "." and tokens[first - 2].type == tokenize.NAME:
            first -= 2
        starts_there = first == 0 or tokens[first - 1].string != "."
        return first < position and starts_there and tokens[first].string in PACKAGES

    def _replace(self, start: int, end: int, new: str) -> None:
        if self._source[start:end] != new:
            self._edits.append((start, end, new))

    # ------------------------------------------------------------------ positions

    def _offset(self, position: tuple[int, int]) -> int:
        return self._starts[position[0] - 1] + position[1]

    def _start(self, node: ast.expr) -> int:
        return self._utf8_offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._utf8_offset(node.end_lineno, node.end_col_offset)

    def _utf8_offset(self, line: int, column: int) -> int:
        """Return the offset of a position whose column counts bytes, as syntax trees do."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def in_prose(text: str) -> str:
    """Return a docstring or comment with the code between its backticks made synchronous."""
    return _SPAN.sub(lambda match: f"`{_in_span(match[1])}`", text)


def in_string(text: str) -> str:
    """Return a string literal, changed only when the whole string is a name that has a synchronous counterpart."""
    quote = text[-1]
    content = text.strip(quote)
    if text != f"{quote}{content}{quote}":
        return text
    if _DOTTED.fullmatch(content):
        return f"{quote}{content.replace('.asyncio', '')}{quote}"
    return f"{quote}{RENAMED.get(content, content)}{quote}"


def _in_span(code: str) -> str:
    code = re.sub(r"\b(?:async|await) +", "", code)
    code = _DOTTED.sub(lambda match: match[0].replace(".asyncio", ""), code)
    return re.sub(r"\w+", lambda match: RENAMED.get(match[0], match[0]), code)


def _end_line(node: ast.stmt | ast.ExceptHandler) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the docstrings of a module, and the strings that stand as statements behind an assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _refuse_leftovers(text: str) -> None:
    """Refuse a synchronous text that does not compile or that still uses asyncio."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise SyncError(f"the synchronous text does not compile: {error}") from None
    for node in ast.walk(tree):
        named = isinstance(node, ast.Name) and node.id == "asyncio"
        imported = isinstance(node, ast.Import) and any(name.name == "asyncio" for name in node.names)
        if named or imported or isinstance(node, (ast.Await, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith)):
            raise SyncError(
                f"{ast.unparse(node).splitlines()[0]!r} has no counterpart in threads; mark it {MARK!r}, or move it to "
                "a module that is written twice"
            )


def _formatted(text: str) -> str:
    for command in (["check", "--fix-only", "--quiet", "--select", "F401,I"], ["format"]):
        done = subprocess.run(
            [RUFF, *command, "--stdin-filename", ROOT / PACKAGE / "made.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write or compare; 0 when everything is up to date."""
    stale = []
    for name in SOURCES:
        source, target = ROOT / name, ROOT / name.replace("asyncio/", "")
        made = synchronous(source.read_text(encoding="utf-8"), name)
        if target.exists() and target.read_text(encoding="utf-8") == made:
            continue
        if arguments == ["--check"]:
            stale.append(target.relative_to(ROOT).as_posix())
        else:
            target.write_text(made, encoding="utf-8")
            print(f"wrote {target.relative_to(ROOT)}")
    if stale:
        print(f"out of date: {', '.join(stale)}; edit the asyncio module and run `make format`")
    return bool(stale)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SyncError as error:
        sys.exit(f"sync.py: {error}")

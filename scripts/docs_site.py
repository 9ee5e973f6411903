"""Make the pages of the site that are kept elsewhere, and link what is no page of it. `mkdocs.yml` names this hook.

Pages of `docs/` are read on the hosting platform too, so their links are paths in the repository. On the site, a link
to a page stays one, and a link to any other file of the repository leads to the platform.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Pages of the site that are files elsewhere in the repository.
KEPT_ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
_PICTURES = "](https://raw.githubusercontent.com/sluicegate/sluicegate/main/"
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are kept elsewhere."""
    repository = str(config.repo_url)
    for source, page in KEPT_ELSEWHERE.items():
        text = (ROOT / source).read_text().replace(f"]({repository}/blob/main/", "](").replace(_PICTURES, "](")
        file = File.generated(config, page, content=text)
        file.edit_uri = f"{repository}/edit/main/{source}"
        files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where they point on the site, and show each diagram as its picture."""
    sources = {page_name: source for source, page_name in KEPT_ELSEWHERE.items()}
    here = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def follow(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[1]))
        anchor = found[2] or ""
        named = KEPT_ELSEWHERE.get(target, target.removeprefix("docs/") if target.startswith("docs/") else "")
        if files.get_file_from_path(named) is not None:
            return posixpath.relpath(named, posixpath.dirname(page.file.src_uri) or ".") + anchor
        if not (ROOT / target).exists():
            return found[0]  # which the site's own check reports
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{target}{anchor}"

    name = posixpath.splitext(page.file.src_uri)[0]
    picture = posixpath.relpath(f"images/{name}.svg", posixpath.dirname(page.file.src_uri) or ".")
    markdown = _DIAGRAM.sub(f"![{page.file.name} as a diagram]({picture})\n", markdown)
    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(follow, part) for part in parts)

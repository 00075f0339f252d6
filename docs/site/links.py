"""Links from a page to files beside ``docs/`` (examples, results): those files become part of the site.

A hook of mkdocs. The pages are read in the repository too, where such links lead to the files themselves.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LINK = re.compile(r"(\]\()(\.\.?/[^)#\s]+)(\)|#)")
BESIDE = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)\)")
ANY_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\.?/[^)#\s]+)\)")


def outside(page: str, target: str, docs: Path) -> Path | None:
    """The file that a link leads to, from the repository's root, if it lies outside the docs."""
    found = (docs / page).parent.joinpath(target).resolve()
    if found.is_relative_to(docs) or not found.is_file():
        return None
    return found.relative_to(docs.parent)


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to."""
    docs = Path(config.docs_dir).resolve()
    for page in list(files.documentation_pages()):
        for _, target, _ in LINK.findall(page.content_string):
            path = outside(page.src_uri, target, docs)
            if path is not None and files.get_file_from_path(f"files/{path.as_posix()}") is None:
                files.append(File.generated(config, f"files/{path.as_posix()}", abs_src_path=str(docs.parent / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead those links to the copies (folders have none), and let Markdown be read within ``<details>``."""
    docs = Path(config.docs_dir).resolve()
    up = "../" * page.file.src_uri.count("/")

    def link(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[2], docs)
        return match[0] if path is None else f"{match[1]}{up}files/{path.as_posix()}{match[3]}"

    def without_folders(match: re.Match[str]) -> str:
        return match[1] if (docs / page.file.src_uri).parent.joinpath(match[2]).is_dir() else match[0]

    def on_site(match: re.Match[str]) -> str:
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), match[2]))
        return match[1] if files.get_file_from_path(beside) is None else match[0]

    if page.file.src_uri.startswith("files/"):  # a page of results: not all that lies beside it is on the site
        return BESIDE.sub(on_site, markdown)
    markdown = ANY_LINK.sub(without_folders, markdown)
    return LINK.sub(link, markdown).replace("<details><summary>", '<details markdown="1"><summary>')

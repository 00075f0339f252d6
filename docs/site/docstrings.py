"""Docstrings as Markdown: reStructuredText's roles become links, doctests become code.

An extension of griffe, which reads the docstrings for the reference.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|exc|obj|data):`~?([\w.]+)`")
MODULE = re.compile(r":mod:`~?([\w.]+)`")


def target_of(name: str, obj: griffe.Object) -> str | None:
    """The full name of what a docstring calls by its own, or None if it is not ours."""
    if "." in name:
        return name if name.startswith("metricfit.") else None
    owners = [obj, obj.parent, obj.module]
    for owner in owners:
        if owner is not None and name in owner.members:
            member = owner.members[name]
            return member.target_path if isinstance(member, griffe.Alias) else member.path
    return None


def with_links(text: str, obj: griffe.Object) -> str:
    """:class:`metricfit.MetricLoss` as a link; names of other libraries as code."""

    def link(match: re.Match[str]) -> str:
        target = target_of(match[1], obj)
        return f"`{match[1]}`" if target is None else f"[`{match[1]}`][{target}]"

    return MODULE.sub(r"`\1`", ROLE.sub(link, text))


def with_fences(text: str) -> str:
    """Doctests between fences: without them ``>>>`` is a quotation of a quotation of a quotation."""
    lines: list[str] = []
    fence = None
    for line in [*text.splitlines(), ""]:
        if fence is None and line.lstrip().startswith(">>>"):
            fence = line[: len(line) - len(line.lstrip())] + "```"
            lines.extend([""] if lines and lines[-1].strip() else [])
            lines.append(f"{fence}pycon")
        elif fence is not None and not line.strip():
            lines.append(fence)
            fence = None
        lines.append(line)
    return "\n".join(lines[:-1])


def leave_out_clutter(cls: griffe.Class) -> None:
    """Drop what Python calls by itself, and attributes that only keep an argument of the constructor."""
    fields = any("dataclass" in str(decorator.value) for decorator in cls.decorators)
    for name, member in list(cls.members.items()):
        special = name.startswith("__") and name != "__init__"
        kept = member.is_attribute and not member.has_docstring and member.labels == {"instance-attribute"}
        if special or (kept and not fields):
            del cls.members[name]


class Docstrings(griffe.Extension):
    """Rewrites every docstring of the package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when all modules are read."""
        waiting: list[griffe.Object] = [pkg]
        while waiting:
            obj = waiting.pop()
            if isinstance(obj, griffe.Class):
                leave_out_clutter(obj)
            if obj.docstring is not None:
                obj.docstring.value = with_fences(with_links(obj.docstring.value, obj))
            waiting.extend(member for member in obj.members.values() if isinstance(member, griffe.Object))

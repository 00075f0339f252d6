"""Every page opened must neither fail nor ask for anything."""

from pathlib import Path

import pytest

from tests.cli.conftest import model, program, small_forests, table, trained  # noqa: F401 - fixtures


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page from disk; at the end no error and no request may have been seen."""
    contexts, seen = [], []

    def opened(text, *, width=1200, dark=False, name="report.html"):
        path = Path(tmp_path) / name
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda m: seen.append(f"console {m.type}: {m.text}") if m.type != "log" else None)
        page.on("pageerror", lambda e: seen.append(f"error: {e}"))
        page.on("dialog", lambda d: seen.append(f"dialog: {d.message}"))
        page.on("request", lambda r: seen.append(r.url) if not r.url.startswith((path.as_uri(), "data:,")) else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert seen == []

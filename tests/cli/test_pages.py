"""Pages for people, on terminals that are too narrow for them."""

from __future__ import annotations

from paddock.cli.pages import page_of


def test_a_page_is_broken_between_words_beneath_its_values() -> None:
    page = "run\n  state              it was stopped by somebody\nok   batch      one two three four five six\n"
    page += "  next: paddock generate runs/tour --prompt x\nmodel: {a: 1, b: 2, c: 3, d: 4, e: 5}\n"
    assert page_of(page, 40).splitlines() == [
        "run",
        "  state              it was stopped by",
        "    somebody",
        "ok   batch      one two three four five",
        "                six",
        "  next:",
        "    paddock generate runs/tour --prompt x",
        "model: {a: 1, b: 2, c: 3, d: 4, e: 5}",
    ]
    assert page_of(page, 1000) == page

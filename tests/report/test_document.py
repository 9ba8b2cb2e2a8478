from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from resilin.report.document import document, escaped, figure_of


def colours() -> list[dict[str, str]]:
    """The custom properties of the light and the dark mode."""
    style = document("t", "", [])
    light, dark = re.findall(r":root\{(.*?)\}", style, re.DOTALL)
    first = dict(re.findall(r"--([a-z]+):(#[0-9a-f]{6})", light))
    return [first, first | dict(re.findall(r"--([a-z]+):(#[0-9a-f]{6})", dark))]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1])
def test_text_and_drawings_stand_out_in_both_modes(mode: int) -> None:
    palette = colours()[mode]
    texts = ("text", "muted", "submitted", "admitted", "completed", "declined", "late", "met")
    for name in texts:
        assert contrast(palette[name], palette["panel"]) >= 4.5, name
    for name in ("text", "muted"):
        assert contrast(palette[name], palette["back"]) >= 4.5, name
    for name in ("text", "late", "muted"):
        assert contrast(palette[name], palette["alarm"]) >= 4.5, name
    for name in ("held", "effective", "working", "other"):
        assert contrast(palette[name], palette["panel"]) >= 3, name
    assert contrast(palette["held"], palette["effective"]) >= 2.5


def test_both_modes_set_every_colour_that_is_used() -> None:
    style = document("t", "", [])
    light, _ = colours()
    assert set(re.findall(r"var\(--([a-z]+)\)", style)) <= set(light)
    dark = re.findall(r":root\{(.*?)\}", style, re.DOTALL)[1]
    assert set(re.findall(r"--([a-z]+):", dark)) == set(light)


def test_a_page_forbids_scripts_and_requests(parse: Callable[[str], object]) -> None:
    page = parse(document("A title", "lead", ["<p>hello</p>"]))
    policy = next(
        m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert page.named("html") == [{"lang": "en"}]
    assert page.text("title") == "A title"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\" onload='x' &amp;", "&quot; onload=&#x27;x&#x27; &amp;amp;"),
        ("a\x00b\x1b[31m\x7f\x9b", "a\ufffdb\ufffd[31m\ufffd\ufffd"),
        ("two\nlines\there", "two lines here"),
        ("abc\u202egnp.exe", "abc&lt;U+202E&gt;gnp.exe"),
        ("\ud800\uffff", "\ufffd\ufffd"),
        ("模型 \N{SNOWMAN} é", "模型 \N{SNOWMAN} é"),
    ],
)
def test_any_text_becomes_harmless(text: str, safe: str) -> None:
    assert escaped(text) == safe


@pytest.mark.parametrize("value", [None, "12", float("nan"), float("inf"), True])
def test_a_figure_that_is_none_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"policy 'fifo': met is .*expected a finite number"):
        figure_of({"policy": "fifo", "met": value}, "met")
    with pytest.raises(ValueError, match="met is missing"):
        figure_of({"policy": "fifo"}, "met")

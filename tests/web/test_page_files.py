"""The page's own files: what they repeat of the programs is the same, and they are small, local and without inline code."""

import re

from tokiod.reports.stages import ORDER
from tokiod.reports.stages_figure import COLOURS
from tokiod.reports.stages_text import LETTERS
from tokiod.web.server import HEADERS, page_files

FILES = {path: content.decode() for path, (content, _) in page_files().items()}


def test_the_stages_of_the_page_have_the_order_letters_and_colours_of_the_command():
    found = re.findall(r'\["(\w+)", "(\w)", "(#\w{6})"\]', FILES["/page/stages.js"])
    assert found == [(stage, LETTERS[stage], COLOURS[stage]) for stage in ORDER]


def test_the_page_is_below_150_kb_and_loads_nothing_from_elsewhere():
    assert sum(len(content) for content, _ in page_files().values()) < 150_000
    for content in FILES.values():
        assert not re.findall(r"""(?:src|href|from|import|url)\s*[=( ]\s*["']?(?:https?:)?//""", content)


def test_the_policy_allows_the_page_s_own_files_alone_and_the_page_needs_no_more():
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'self';")
    assert not re.findall(r"<script(?![^>]* src=)|<style|\bstyle=|\bon\w+=|javascript:", FILES["/"])

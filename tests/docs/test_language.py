"""Code, messages and documents are in plain technical English: docs/glossary.md, and none of the idioms below."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IDIOMS = re.compile(
    r"\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Ww]homever|[Aa]nybody|[Ss]trangers?|[Ss]tanzas?"
    r"|(is|are|was|were|be) (told|heard)|(?<!there )\b(is|are|was|were|be) none|tells? of|told of"
    r"|was had|be had|been had|in vain|at the latest who|gone mad|goes on with"
    r"|how it does|how they do|a stranger's|opened up|opens it up)\b"
)
PATTERNS = ("README.md", "docs/*.md", "docs/sources/*.md", "docs/sensors/*.md", "docs/**/*.py", "config/**/*", "systemd/**/*")
CODE = ("tokiod/**/*.py", "collectors/**/*.py", "sinks/**/*.py")
TEXTS = sorted(path for pattern in (*PATTERNS, *CODE) for path in ROOT.glob(pattern) if path.is_file())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_has_no_private_idiom(path):
    lines = enumerate(path.read_text("utf-8").splitlines(), 1)
    assert [f"{number}: {line.strip()}" for number, line in lines if IDIOMS.search(line)] == []

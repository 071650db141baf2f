"""Sphinx's settings: ``python -m sphinx -W --keep-going docs build/docs``."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # this checkout's clgemm, whatever is installed

project = "clgemm"
author = "The clgemm developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
html_theme = "furo"
release = importlib.import_module("clgemm").__version__
html_static_path = html_css_files = ["site.css"]
html_title = f"clgemm {release}"
exclude_patterns = ["measured"]
default_role = "py:obj"  # `name` in docstrings
numpydoc_show_class_members = False  # reference.rst says which
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3

SOURCE = "https://github.com/clgemm/clgemm/blob/main"
# |A| in docstrings is an absolute value, not a substitution of reStructuredText's.
BAR = re.compile(r"``.*?``|\|")


def link_to_source(_app: Any, page: str, source: list[str]) -> None:
    """Let links that leave docs/ lead to the repository; tests/test_docs.py checks them."""
    if not page.endswith("reference"):
        source[0] = re.sub(r"(?<!!)(\[[^\]]*\]\()\.\./", rf"\g<1>{SOURCE}/", source[0])
        source[0] = source[0].replace("](measured)", f"]({SOURCE}/docs/measured)")


def escape_bars(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Escape the bars of absolute values in a docstring."""
    for i, line in enumerate(lines):
        lines[i] = BAR.sub(lambda found: "\\|" if found[0] == "|" else found[0], line)


def write_formula(translator: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers show without a script from elsewhere."""
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    if node.tagname == "math":
        formula = convert(node.astext())
    else:
        formula = f'<div class="math">{convert(node.astext(), display="block")}</div>'
    translator.body.append(formula)
    raise SkipNode


def write_ladder(app: Any, error: Exception | None) -> None:
    """Write the ladder's interactive page beside the pages of the HTML builder."""
    from clgemm.ladder.explain import page, shipped

    if error is None and app.builder.format == "html":
        Path(app.outdir, "ladder.html").write_text(page(shipped()), encoding="utf-8")


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("build-finished", write_ladder)
    app.connect("source-read", link_to_source)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after numpydoc

"""How Sphinx builds the site from what docs/pages.py wrote (`make docs`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geosprint

DOCS = Path(__file__).parent

project = "GeoSPRINT"
author = "The GeoSPRINT authors"
project_copyright = author
release = geosprint.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3  # pages link to headings as they do on GitHub
suppress_warnings = ["myst.header"]  # a page of the changelog may begin with a lower heading
smartquotes = False  # they would turn --option into a dash
highlight_language = "text"
toc_object_entries = False  # every name has a heading of its own
default_role = "code"  # docstrings write `name`, as Markdown does

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = "GeoSPRINT"
html_favicon = str(DOCS / "favicon.svg")
html_static_path = [str(DOCS / "site.css")]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """Docstrings are plain text in this package, and not its own where a method is inherited."""
    app.connect("autodoc-process-docstring", _as_plain_text)


def _as_plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if not (getattr(obj, "__module__", None) or project.lower()).startswith(project.lower()):
        lines.clear()
    for index, line in enumerate(lines):
        texts = line.split("`")
        texts[::2] = [text.replace("*", r"\*") for text in texts[::2]]  # the others are code
        lines[index] = "`".join(texts)

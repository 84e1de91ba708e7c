"""Settings of Sphinx for the folder that build.py lays out."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path

project = "postrun"
author = "postrun"
version = release = installed_version("postrun")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["files"]
myst_heading_anchors = 4
language = "en"
highlight_language = "text"

html_theme = "furo"
html_title = "postrun"
html_static_path = [str(Path(__file__).resolve().parent / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_theme_options = {"top_of_page_buttons": []}

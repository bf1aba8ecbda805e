# Configuration of Sphinx for the site that scripts/site builds.
import os

project = "Windrow"
author = "the authors of Windrow"
copyright = author
version = release = os.environ["WINDROW_VERSION"]

extensions = ["myst_parser"]
myst_heading_anchors = 4  # of the anchors that links in Markdown use
root_doc = "index"
exclude_patterns = ["site"]
highlight_language = "none"  # blocks without a language are commands and diagrams

html_theme = "furo"
html_title = f"Windrow {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

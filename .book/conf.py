"""Sphinx configuration of the book, whose source `book.py` puts together: notebooks as committed, not executed."""

import re

import palslib

project, author, release = "palslib", "The palslib authors", palslib.__version__
copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]

nb_execution_mode = "off"
nb_output_stderr = "remove"  # progress bars
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 140

html_theme = "furo"
html_title = "BERT and PALs"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = [("explore.js", {"defer": "defer"})]
html_copy_source = html_show_sphinx = False


fields = {}  # docstrings of attributes, which Napoleon would read as `type: description`


def before(app, what, name, thing, options, lines):
    if what == "attribute":
        fields[name] = list(lines)


def after(app, what, name, thing, options, lines):
    """Restores docstrings of attributes, and doubles single backticks, also where letters follow them."""
    text = "\n".join(fields.get(name, lines))
    lines[:] = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", text).split("\n")


def setup(app):
    app.connect("autodoc-process-docstring", before, priority=400)
    app.connect("autodoc-process-docstring", after, priority=600)

"""Sphinx configuration of the book, whose source `book.py` puts together: notebooks as committed, not executed."""

import re

import palslib

project, author, release = "palslib", "The palslib authors", palslib.__version__
copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]

nb_execution_mode = "off"
nb_output_stderr = "remove"  # progress bars
nb_merge_streams = True
nb_render_markdown_format = "myst"  # of outputs, too
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
    if what in ("attribute", "property"):
        fields[name] = list(lines)


def after(app, what, name, thing, options, lines):
    """Restores docstrings of attributes, and doubles single backticks, also where letters follow them."""
    text = "\n".join(fields.get(name, lines))
    lines[:] = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", text).split("\n")


def signature(app, what, name, thing, options, arguments, returns):
    """For a class of settings no list of all its fields, which stand below."""
    if hasattr(thing, "__pydantic_fields__") and what == "class":
        return "(**settings)", returns


def setup(app):
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", before, priority=400)
    app.connect("autodoc-process-docstring", after, priority=600)

"""The site: ``pip install '.[docs]' && sphinx-build -W docs build/site``."""

from __future__ import annotations

import convgrad

project = "convgrad"
author = "the convgrad authors"
version = release = convgrad.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "convgrad"
default_role = "code"
autodoc_typehints = "description"

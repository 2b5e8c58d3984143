"""The site: ``pip install '.[docs]' && sphinx-build -W docs build/site``."""

from __future__ import annotations

import posixpath
import re
import sys
from typing import Any
from unittest.mock import MagicMock

from docutils import nodes

import convgrad

# What convgrad.torch, .jax and .dask import stands in for itself: signatures and docstrings need none of it.
STAND_INS = (
    "torch torch.autograd torch.autograd.graph torch.nn"
    " torch.nn.modules torch.nn.modules.conv torch.nn.modules.lazy torch.nn.modules.linear"
    " torch.nn.parameter torch.nn.utils torch.nn.utils.parametrize torch.utils torch.utils._pytree"
    " torch.nn.modules.module torch.utils._python_dispatch torch.distributed torch.optim torch.optim.optimizer"
    " jax.extend.source_info_util torch.overrides torch.utils.flop_counter"
    " convgrad.torch.operators convgrad.torch.flops"
    " jax jax.extend jax.extend.core jax.extend.core.primitives jax.extend.linear_util jax.interpreters jax.typing"
    " dask dask._task_spec dask.array dask.array.core dask.base dask.blockwise dask.highlevelgraph"
)
stand_in = MagicMock(__version__="0.10", __version_info__=(0, 10))  # which convgrad.jax looks at
stand_in.array = stand_in.core = stand_in  # convgrad.dask: that dask.array.Array is dask.array.core.Array
stand_in.nn.Module = type("Module", (), {"__module__": "torch.nn"})  # types in signatures, by their names
stand_in.lax.ConvDimensionNumbers = type("ConvDimensionNumbers", (), {"__module__": "jax.lax"})
MADE_BY_CALLS = {"convgrad.Compiled", "convgrad.Partials", "convgrad.Pullback", "convgrad.graph.CompiledPartition"}
sys.modules |= dict.fromkeys(STAND_INS.split(), stand_in)

project = "convgrad"
author = copyright = "the convgrad authors"
version = release = convgrad.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_domain_indices = False  # of modules: the sidebar names them
html_title = "convgrad"
html_logo = "_static/logo.svg"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
default_role = "code"
nitpicky = True
nitpick_ignore_regex = [("py:(class|data|obj)", ".*")]
autodoc_member_order = "bysource"
autosummary_generate = False
autodoc_default_options = {"members": True}
autodoc_type_aliases = {
    name: name
    for name in ["Array", "ArrayLike", "DType", "Operand", "PerAxis", "ShapeLike", "Tensor", "Tensors", "Told"]
}
smartquotes = False  # --option and "bf16" stay what is typed
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"


def signature(app: Any, what: str, name: str, thing: Any, options: Any, given: str | None, result: str | None) -> Any:
    """Return a signature with the names that types have in the source; none of what only calls make."""
    if name in MADE_BY_CALLS:
        return "", None
    given, result = (text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in (given, result))
    return given and given.replace("<factory>", "..."), result


def fields(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Say nothing of a field of which there is nothing but its number, nor of parameters that only calls pass."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()
    if name in MADE_BY_CALLS:
        lines[:] = re.sub(r"(?m)^:param .*\n(?: +.*\n)*", "", "\n".join(lines)).split("\n")


def colons(app: Any, doctree: nodes.document) -> None:
    """Write a colon between an error and what it means, where Sphinx has two hyphens."""
    for text in [text for text in doctree.findall(nodes.Text) if text == " -- "]:
        text.parent.replace(text, nodes.Text(": "))


def titles(app: Any, doctree: nodes.document, page: str) -> None:
    """Call a page by its title where a link, for who reads the file itself, calls it by the file's name."""
    for text in [text for text in doctree.findall(nodes.Text) if text.endswith(".md")]:
        link = text.parent.parent if isinstance(text.parent, nodes.inline) else text.parent
        title = app.env.titles.get(posixpath.basename(text).removesuffix(".md").lower())
        if title and isinstance(link, nodes.reference) and link.get("internal"):
            text.parent.replace(text, nodes.Text(title.astext()))


def beside(app: Any, included: Any, page: str, texts: list[str]) -> None:
    """Have links between files of the top folder lead to their pages: SECURITY.md is security.md, LICENSE itself."""
    texts[0] = re.sub(r"\]\(([A-Z_]+\.md)", lambda link: link[0].lower(), texts[0]).replace("](LICENSE", "](../LICENSE")


def setup(app: Any) -> None:
    """Have all of this done."""
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", fields)
    app.connect("doctree-read", colons)
    app.connect("doctree-resolved", titles)
    app.connect("include-read", beside)

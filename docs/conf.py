"""Settings of the documentation: ``sphinx-build -W docs docs/_build/html``, without a network."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generated_pages  # noqa: E402

project = "demur"
author = "The demur maintainers"
copyright = "the demur maintainers"
version = release = installed("demur")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.githubpages",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = [
    *("_build", "_templates", "plots"),
    # Tables of times, which would load scripts from elsewhere.
    *("sg_execution_times.rst", "**/sg_execution_times.rst"),
    # Each plot is a page already.
    "gallery/*.ipynb",
]
nitpicky = False
default_role = "py:obj"
# Pages are plain HTML: no formula needs a script, nothing is loaded from elsewhere.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]
# The notebook has its outputs in it; tests/e2e/test_notebook.py runs it again.
nb_execution_mode = "off"

autosummary_generate = True
autosummary_filename_map = generated_pages.file_names()
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "plots",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e6,
    "download_all_examples": False,
    "plot_gallery": "True",
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "demur"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_generated"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "demur"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}


def setup(app):
    """Write the pages that are made from the package before anything is read."""
    generated_pages.write(HERE)
    app.connect("autodoc-skip-member", _skip)


def _skip(app, what, name, member, skip, options):
    # What torch and scikit-learn say of their own classes is in their documentation.
    owner = getattr(member, "__module__", None)
    return True if isinstance(owner, str) and owner.split(".")[0] in ("torch", "sklearn") else skip

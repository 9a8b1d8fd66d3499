"""Template + context -> text; the only importer of jinja2. Templates hold layout: no arithmetic, no rounding."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.paths import data


def render(template: str, context: Mapping[str, object]) -> str:
    """Return ``templates/<template>`` filled with ``context``.

    Values go in as they are: the caller has escaped what comes from outside.

    Raises
    ------
    jinja2.UndefinedError
        The template uses a name that the context lacks.
    UsageError
        The installation has no ``templates``.
    """
    environment = Environment(
        loader=FileSystemLoader(data("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Markdown; harness.pages.markdown.escape does its escaping
    )
    return environment.get_template(template).render(context)

from pathlib import Path

import pytest
from jinja2 import UndefinedError

import harness
from harness.paths import data
from harness.render import render


def test_a_name_that_the_context_lacks_is_an_error_and_not_an_empty_string() -> None:
    with pytest.raises(UndefinedError):
        render("pr.md.j2", {"new": "a"})


def test_render_is_the_only_importer_of_jinja2() -> None:
    root = Path(harness.__file__).parent
    importers = {
        path.name
        for path in root.rglob("*.py")
        if "import jinja2" in (text := path.read_text()) or "from jinja2" in text
    }

    assert importers == {"render.py"}


def test_templates_neither_compute_nor_round() -> None:
    for template in data("templates").glob("*.j2"):
        text = template.read_text()
        inside = [part.split("}}")[0] for part in text.split("{{")[1:]]

        assert [part for part in inside if set(part) & set("+*/%|")] == []

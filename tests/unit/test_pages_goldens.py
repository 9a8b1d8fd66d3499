import pytest

from harness import plugins, runfile
from harness.model.run import Run
from tests.unit.report_goldens import FOLDER, FORMATS, GOLDENS, Golden, built, load, stored


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_a_stored_run_gives_the_stored_page_byte_for_byte(golden: Golden, form: str) -> None:
    expected = (FOLDER / f"{golden.name}.{FORMATS[form]}").read_bytes()

    assert golden.page(form, load(golden)).encode() == expected


@pytest.mark.parametrize(("name", "made"), tuple(built()))
def test_the_stored_runs_are_those_that_the_builders_make(name: str, made: Run) -> None:
    assert runfile.load(stored(name)) == made


def test_every_page_has_a_golden() -> None:
    assert plugins.names("pages") == tuple(sorted(FORMATS))

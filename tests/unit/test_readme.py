"""What the README shows is run as it stands."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

from harness import runfile
from harness.arms import Arm
from harness.cli import cake_bench
from harness.cli._options import Selection, read_shapes, select_arms, select_cases
from harness.cli._session import arm_infos, select_regimes, select_twin
from harness.cli.run import command as run_command
from harness.correctness import check_arms
from harness.model.run import row_key
from harness.operands import make_operands
from harness.rounds import file as rounds_file
from tests.bench import machine, small_case

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text()


def test_the_readmes_h200_table_is_that_of_the_committed_report() -> None:
    folder = TOP / "reports" / "h200"
    pages = (
        *("moe-training/boost", "moe-training/ckpt-es"),
        *("programs/best", "programs/sustained"),
    )
    report = "\n".join((folder / f"{page}.md").read_text() for page in pages)
    part = README[README.index("## A real table") : README.index("## Use")]
    lines = [line for line in part.splitlines() if line.startswith("|")]

    assert len(lines) >= 15
    assert [line for line in lines if line not in report.splitlines()] == []


def test_the_readme_has_no_place_left_to_fill() -> None:
    assert "<!--" not in README


def renderings() -> dict[str, list[str]]:
    """Page -> the words of the command that reports/README.md gives for it, without the page."""
    lines = (TOP / "reports" / "README.md").read_text().splitlines()
    words = [shlex.split(line) for line in lines if line.startswith(("cake-bench report", "cake-bench rounds"))]
    assert all(command[-2] == "-o" for command in words)
    return {command[-1]: command[1:-2] for command in words}


def test_every_committed_page_has_its_command() -> None:
    folder = TOP / "reports" / "h200"
    pages = {str(page.relative_to(folder)) for page in folder.rglob("*.md")}

    assert pages == {*renderings(), "configs/configs.md"}


@pytest.mark.parametrize(("page", "command"), renderings().items(), ids=renderings())
def test_a_committed_page_is_what_its_command_prints(
    page: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TOP / "reports" / "h200")

    printed = CliRunner().invoke(cake_bench, command, prog_name="cake-bench").stdout

    assert printed == Path(page).read_text()


@pytest.mark.parametrize("path", sorted((TOP / "reports" / "h200").rglob("*.json")), ids=lambda p: p.name)
def test_a_committed_run_file_still_loads_and_is_small(path: Path) -> None:
    assert path.stat().st_size < 1 << 20
    if path.parent.name == "rounds":
        assert rounds_file.load(path).rounds
    elif path.parent.name != "doctor":
        assert runfile.load(path).rows


def measurements() -> dict[str, list[str]]:
    """Folder and run id -> the options of the command that reports/README.md gives for that run."""
    lines = (TOP / "reports" / "README.md").read_text().splitlines()
    words = [shlex.split(line)[2:] for line in lines if line.startswith("cake-bench run ")]
    return {f"{Path(given[given.index('--out') + 1]).name}/{given[-1]}": given for given in words}


@pytest.mark.parametrize(("place", "words"), measurements().items(), ids=measurements())
def test_a_committed_run_is_what_its_command_plans(place: str, words: list[str]) -> None:
    folder, run_id = place.split("/")
    runs = [runfile.load(path) for path in (TOP / "reports" / "h200" / folder).glob("*.json")]
    (run,) = (each for each in runs if each.run_id == run_id)
    top = click.Context(cake_bench, **cake_bench.context_settings)
    given = run_command.make_context("run", list(words), parent=top).params
    chosen = Selection(**{each.name: given[each.name] for each in fields(Selection)})

    cases, counts = select_cases(read_shapes(chosen.shapes_file), chosen)
    regimes = [regime.name for regime in select_regimes(given["regimes"], "cuda")]
    arms = select_arms(chosen.arms, previous=given["previous"] is not None)
    infos = arm_infos(arms, select_twin(given["aa"], arms, "cuda"))

    assert run.planned == tuple(row_key(regime, case) for case in cases for regime in regimes)
    assert [(arm.name, arm.twin_of) for arm in run.arms] == [(arm.name, arm.twin_of) for arm in infos]
    assert (run.groups, run.seed, bool(run.rates)) == (given["groups"], given["seed"], given["floors"])
    assert run.suite_counts == counts
    assert (run.previous.revision if run.previous else "").startswith(given["previous"] or "")


def test_the_readmes_arm_is_right() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    space: dict[str, object] = {}
    exec(compile(source, "README.md", "exec"), space)
    arm = space["ARM"]
    case = small_case("fwd", sizes=(3, 0, 5, 1))
    operands = make_operands(case, seed=0, device=torch.device("cpu"))

    assert isinstance(arm, Arm)
    assert arm.why_not(case, machine()) is None
    assert arm.why_not(small_case("dW"), machine()) == "einsum is written for fwd only"
    assert check_arms(case, operands, {"einsum": arm.prepare(case, operands)}, seed=0)["einsum"].failure == ""

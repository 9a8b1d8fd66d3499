"""The documents against the program: help texts, examples, links, and what a clone must not say."""

import importlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.cli import cake_bench

TOP = Path(__file__).parents[2]
CLI_PAGE = TOP / "docs" / "cli.md"
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *(TOP / "cake_kernels").rglob("*.md")])
COMMANDS = cake_bench.list_commands(click.Context(cake_bench))


def help_text(*words: str) -> str:
    return CliRunner().invoke(cake_bench, [*words, "--help"], prog_name="cake-bench", terminal_width=100).output


def with_subcommands(name: str) -> list[tuple[str, ...]]:
    command = importlib.import_module(f"harness.cli.{name.replace('-', '_')}").command
    subcommands = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ()
    return [(name,), *((name, sub) for sub in subcommands)]


def cli_page() -> str:
    parts = ["# Commands", "", "Written from the program's own `--help`; `make golden` writes it again.", ""]
    for words in ((), *(words for name in COMMANDS for words in with_subcommands(name))):
        parts += [f"## cake-bench {' '.join(words)}".rstrip(), "", "```text", help_text(*words).rstrip(), "```", ""]
    return "\n".join(parts)


def examples(text: str) -> list[str]:
    joined = text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip().startswith("cake-bench ")]


def test_the_commands_page_is_the_programs_help() -> None:
    if os.environ.get("GOLDEN_WRITE"):
        CLI_PAGE.write_text(cli_page())
    assert CLI_PAGE.read_text() == cli_page()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_an_example_that_parses(name: str) -> None:
    found = examples(help_text(name))

    assert found
    assert all(line.split()[1] == name for line in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(TOP)))
def test_every_command_line_in_the_documents_parses(page: Path) -> None:
    for line in examples(page.read_text()):
        words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)[1:]
        if words[:1] in (["--help"], ["--version"]):
            continue
        command = cake_bench.get_command(click.Context(cake_bench), words[0])
        assert command is not None, line
        command.make_context(words[0], words[1:], resilient_parsing=False) if "--help" not in words else None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(TOP)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())

    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]

    assert missing == []


def test_no_file_names_a_place_that_a_clone_does_not_have() -> None:
    listed = subprocess.run(["git", "-C", str(TOP), "ls-files"], capture_output=True, text=True, check=False).stdout
    names = listed.split() or [str(p.relative_to(TOP)) for p in TOP.rglob("*") if ".venv" not in p.parts]
    forbidden = re.compile(r"(?<![A-Za-z0-9_.-])/(?:work|farm|root)/|\.\./" + "shared")

    said = []
    for name in names:
        path = TOP / name
        if path.is_file() and path.suffix in (
            ".py",
            ".md",
            ".toml",
            ".yaml",
            ".txt",
            ".cu",
            ".cuh",
            ".j2",
            ".json",
            "",
        ):
            said += [
                f"{name}: {m.group()}" for m in forbidden.finditer(path.read_text(encoding="utf-8", errors="replace"))
            ]

    assert said == []

"""The file of rounds: JSON, one line a round, replaced atomically; read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness import result_files
from harness.errors import RunFileError
from harness.rounds.model import SCHEMA_VERSION, RoundsRun
from harness.strict import violations

_ONE_A_LINE = ("machines", "rounds")


def dumps(run: RoundsRun) -> str:
    """Return the text of ``run``'s file, one line a round, so that two files can be compared line by line."""
    fields = run.model_dump(mode="json")
    return "{\n" + ",\n".join(f"{_compact(name)}:{_value(name, value)}" for name, value in fields.items()) + "\n}\n"


def save(run: RoundsRun, path: Path) -> None:
    """Write ``run`` to ``path`` so that at every moment the file is the old one or the new one, whole.

    Raises
    ------
    RunFileError
        The folder cannot be written to, or ``run`` holds what :func:`load` would refuse.
    """
    text = dumps(run)
    loads(text, f"run {run.run_id}")
    result_files.write(path, text)


def load(path: Path) -> RoundsRun:
    """Return the run of rounds in ``path``.

    Raises
    ------
    RunFileError
        It cannot be read, is of another schema version, or holds what no run of rounds can have produced.
    """
    return loads(result_files.read(path, "file of rounds"), str(path))


def loads(text: str, name: str) -> RoundsRun:
    """Return the run in ``text``; ``name`` is what errors call it."""
    fields = result_files.parse(text, name, "file of rounds")
    if not isinstance(fields, dict) or "schema_version" not in fields or "plan" not in fields:
        raise RunFileError(
            f"{name} is no file of rounds: it must be an object with schema_version and plan; cake-bench rounds run"
            " writes such"
        )
    if fields["schema_version"] != SCHEMA_VERSION:
        raise RunFileError(f"{name} has schema_version {fields['schema_version']}; this version reads {SCHEMA_VERSION}")
    try:
        run = RoundsRun.model_validate_json(text)
    except ValidationError as error:
        raise RunFileError(f"{name}: {violations(error)[0].text}") from error
    except RunFileError as error:
        raise RunFileError(f"{name}: {error}") from error
    # The parts that are dataclasses let unknown keys and missing defaults pass; written again, they would be lost.
    written = run.model_dump(mode="json")
    for key, value in fields.items():
        if value != written[key]:
            raise RunFileError(f"{name}: {key} holds an unknown or lacks a known key; cake-bench rounds run writes all")
    return run


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of rounds; ``docs/rounds.schema.json`` is its committed copy."""
    return RoundsRun.model_json_schema(mode="serialization")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _value(name: str, value: object) -> str:
    if name in _ONE_A_LINE and isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)

"""The run file: the only place that knows its form. JSON, rows one a line, samples as columns, replaced atomically."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness import result_files
from harness.errors import RunFileError
from harness.model.run import SCHEMA_VERSION, Run

OPTIONAL = ("sources_sha256", "previous", "rates", "sittings")
"""Keys that stand in a file only where there is something to say: older files have none of them."""


def dumps(run: Run) -> str:
    """Return the text of ``run``'s file: one line a row, so that two files can be compared line by line.

    Raises
    ------
    RunFileError
        It holds what :func:`loads` would refuse: another type than its field's, a NaN, half a surrogate pair.
    """
    try:
        fields = _fields(run)
        lines = [f"{_compact(name)}:{_value(name, value)}" for name, value in fields.items()]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        text.encode("utf-8")
    except ValueError as error:
        raise RunFileError(f"run {run.run_id} cannot be written: {' '.join(str(error).split())}") from error
    return text


def save(run: Run, path: Path) -> None:
    """Write ``run`` to ``path`` so that at every moment the file is the old one or the new one, whole.

    Raises
    ------
    RunFileError
        The folder cannot be written to, or ``run`` holds what :func:`load` would refuse.
    """
    text = dumps(run)
    result_files.write(path, text)


def load(path: Path) -> Run:
    """Return the run in ``path``.

    Raises
    ------
    RunFileError
        It cannot be read, is of another schema version, or holds what no run can have produced (a NaN, a zero duration,
        a time below the row's physical floor, an unknown key).
    """
    return loads(result_files.read(path, "run file"), str(path))


def loads(text: str, name: str) -> Run:
    """Return the run in ``text``; ``name`` is what errors call it."""
    fields = result_files.parse(text, name, "run file")
    if not isinstance(fields, dict) or "schema_version" not in fields:
        raise RunFileError(
            f"{name} is no run file: it must be an object with schema_version; cake-bench run writes such"
        )
    if fields["schema_version"] != SCHEMA_VERSION:
        raise RunFileError(f"{name} has schema_version {fields['schema_version']}; this version reads {SCHEMA_VERSION}")
    try:
        run = _adapter().validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RunFileError(f"{name}: {where}: {first['msg']}, got {str(first['input'])[:80]}") from error
    except RunFileError as error:
        raise RunFileError(f"{name}: {error}") from error
    # Reading and writing again must give the same: an unknown or missing key would otherwise be lost in silence.
    difference = _first_difference(fields, _fields(run), "")
    if difference:
        raise RunFileError(f"{name}: {difference}")
    return run


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a run file; ``docs/runfile.schema.json`` is its committed copy."""
    return _adapter().json_schema(mode="serialization")


@cache
def _adapter() -> TypeAdapter[Run]:
    return TypeAdapter(Run)


def _fields(run: Run) -> dict[str, Any]:
    fields: dict[str, Any] = _adapter().dump_python(run, mode="json", warnings="error")
    return {key: value for key, value in fields.items() if value or key not in OPTIONAL}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _value(name: str, value: object) -> str:
    if name in ("rows", "rates", "machines", "arms") and isinstance(value, list) and value:
        return "[\n" + ",\n".join(_compact(item) for item in value) + "\n]"
    return _compact(value)


def _first_difference(read: object, written: object, where: str) -> str:
    if isinstance(read, dict) and isinstance(written, dict):
        for key in read.keys() | written.keys():
            if key not in written:
                return f"{where or 'the file'} has the unknown key {key!r}"
            if key not in read:
                return f"{where or 'the file'} lacks the key {key!r}"
            if difference := _first_difference(read[key], written[key], f"{where}.{key}".lstrip(".")):
                return difference
        return ""
    if isinstance(read, list) and isinstance(written, list) and len(read) == len(written):
        return next(
            (
                d
                for i, (r, w) in enumerate(zip(read, written, strict=True))
                if (d := _first_difference(r, w, f"{where}[{i}]"))
            ),
            "",
        )
    return "" if read == written else f"{where} reads as {read!r} and would be written as {written!r}"

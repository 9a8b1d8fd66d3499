"""YAML with lines: plain values, and the line of every key and value for messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import yaml
from pydantic import ValidationError

from harness.errors import ShapesError
from harness.strict import At, Strict, value_text, violations

Model = TypeVar("Model", bound=Strict)

MAX_VALUES = 100_000
"""Most values of a file, every alias written out: ten lines of aliases of aliases would fill the memory."""

# YAML 1.1 reads 010 as 8, 1:30 as 90, 0x10 as 16, 1_0 as 10 and "on" as true; here a value is what it looks like.
_TAG = "tag:yaml.org,2002:"
_AS_WRITTEN = {
    f"{_TAG}int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    f"{_TAG}float": re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)"),
    f"{_TAG}bool": re.compile("true|false"),
}
_ANY = re.compile(r"(?s:.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a YAML text holds.

    Attributes
    ----------
    file
        Name of the file in messages.
    value
        Plain values: mappings, lists, scalars.
    key_lines, value_lines
        Line (from 1) of each place; a collection's line is that of its key, so that it can be found by its name.
    """

    file: str
    value: object
    key_lines: dict[At, int]
    value_lines: dict[At, int]

    def error(self, at: At, text: str, *, is_key: bool = False) -> ShapesError:
        """Return the error ``FILE:LINE: text`` for a place, or for the nearest one around it that has a line."""
        lines = self.key_lines if is_key else self.value_lines
        while at and at not in lines:
            at = at[:-1]
        return ShapesError(f"{self.file}:{lines.get(at, 1)}: {text}")

    def validate(self, model: type[Model], value: object, at: At = ()) -> Model:
        """Return ``value``, which stands at ``at``, as a ``model``.

        Raises
        ------
        ShapesError
            The first thing that is wrong, with its line.
        """
        try:
            return model.model_validate(value)
        except ValidationError as error:
            first = violations(error, at)[0]
            raise self.error(first.at, first.text, is_key=first.is_key) from None


def load(data: bytes, file: str) -> Document:
    """Read the bytes of a YAML file.

    Raises
    ------
    ShapesError
        They are not UTF-8, not YAML or empty, a key stands twice or is no text, or a value holds itself.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ShapesError(f"{file}:{line}: the file must be UTF-8, got the byte 0x{data[error.start]:02x}") from None
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise ShapesError(f"{file}:1: the file must hold a mapping, got nothing")
        walk = _Walk(file, loader)
        value = walk.value(root, (), ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ShapesError(f"{file}:{line}: not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ShapesError(f"{file}:{line}: not YAML: the character {chr(error.character)!r} is not allowed") from None
    except RecursionError:
        raise ShapesError(f"{file}:1: not readable: brackets are nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return Document(file=file, value=value, key_lines=walk.key_lines, value_lines=walk.value_lines)


class _Walk:
    """Turns nodes into values and notes their lines."""

    def __init__(self, file: str, loader: yaml.SafeLoader) -> None:
        self.file = file
        self.loader = loader
        self.key_lines: dict[At, int] = {}
        self.value_lines: dict[At, int] = {}

    def value(self, node: yaml.Node, at: At, around: tuple[yaml.Node, ...]) -> object:
        line = node.start_mark.line + 1
        if len(self.value_lines) >= MAX_VALUES:
            raise ShapesError(f"{self.file}:{line}: the file holds more than {MAX_VALUES} values, aliases written out")
        if node in around:
            raise ShapesError(f"{self.file}:{line}: an alias must not stand inside its own anchor")
        self.key_lines.setdefault(at, line)
        is_scalar = isinstance(node, yaml.ScalarNode)
        self.value_lines[at] = line if is_scalar else self.key_lines[at]
        inside = (*around, node)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, at, inside)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, (*at, index), inside) for index, item in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, at: At, inside: tuple[yaml.Node, ...]) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, line) if isinstance(key_node, yaml.ScalarNode) else key_node.value
            if not isinstance(key, str):
                raise ShapesError(f"{self.file}:{line}: a key must be text, got {key!r}; put it into quotes")
            if key in values:
                first = self.key_lines[(*at, key)]
                raise ShapesError(f"{self.file}:{line}: the key {key!r} stands twice; first in line {first}")
            self.key_lines[(*at, key)] = line
            values[key] = self.value(value_node, (*at, key), inside)
        return values

    def _scalar(self, node: yaml.Node, line: int) -> object:
        is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
        implied = self.loader.resolve(type(node), node.value, (is_plain, not is_plain))  # type: ignore[no-untyped-call]
        if not isinstance(node, yaml.ScalarNode) or node.tag != implied:
            raise ShapesError(f"{self.file}:{line}: the tag {node.tag!r} is not allowed; write the plain value")
        if node.tag == f"{_TAG}merge":
            raise ShapesError(f"{self.file}:{line}: the merge key << is not allowed; anchors and aliases are")
        if not _AS_WRITTEN.get(node.tag, _ANY).fullmatch(node.value):
            raise ShapesError(
                f"{self.file}:{line}: {value_text(node.value)} is another value to YAML 1.1 than it looks;"
                " write a number in plain decimal digits, true or false, and text in quotes"
            )
        try:
            value: object = self.loader.construct_object(node)
        except (ValueError, OverflowError) as error:
            raise ShapesError(f"{self.file}:{line}: {value_text(node.value)} cannot be read: {error}") from None
        return value

"""Strict models: nothing is cast, no unknown key passes, and what is wrong is said in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from harness.model.shape import MAX_DIM

At = tuple[str | int, ...]
"""Where a value stands in nested mappings and lists: ``("suites", "smoke", "rows", 0)``."""


def is_legible(text: str) -> bool:
    """Return whether a table can show ``text`` as a name: something to see, no control character, no line break."""
    return text.isprintable() and not text.isspace()


def _legible(text: str) -> str:
    if not is_legible(text):
        raise PydanticCustomError("illegible", "illegible")
    return text


Text = Annotated[str, Field(min_length=1)]
Label = Annotated[str, AfterValidator(_legible)]
"""What a name may hold, or empty."""
Name = Annotated[str, Field(min_length=1), AfterValidator(_legible)]
Positive = Annotated[int, Field(ge=1, le=MAX_DIM)]
NotNegative = Annotated[int, Field(ge=0)]

# What a value must be, by pydantic's name of the error.
_RULES = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "illegible": "a name that can be seen, without control characters",
    "int_type": "an integer",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
    "literal_error": "{expected}",
    "model_type": "a mapping",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}


class Strict(BaseModel):
    """A frozen model without casts: ``true`` is no integer, ``"8"`` is no number, an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        for key in values if isinstance(values, Mapping) else ():
            if key not in cls.model_fields:
                known = ", ".join(cls.model_fields) or "none"
                raise PydanticCustomError("unknown_key", "{key}{known}", {"key": key, "known": known})
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that is wrong with an input.

    Attributes
    ----------
    at
        Place of the offending key or value; of a missing key, the mapping that lacks it.
    is_key
        The key is wrong, not its value.
    text
        The name, the rule and the value.
    """

    at: At
    is_key: bool
    text: str


def violations(error: ValidationError, at: At = ()) -> tuple[Violation, ...]:
    """Return what ``error`` found, in words; ``at`` is the place of the validated value."""
    found = []
    for detail in error.errors(include_url=False):
        where: At = (*at, *detail["loc"])
        context = detail.get("ctx", {})
        if detail["type"] == "unknown_key":
            inside = f" in {path_text(where)}" if where else ""
            text = f"unknown key {context['key']!r}{inside}; known: {context['known']}"
            found.append(Violation(at=(*where, context["key"]), is_key=True, text=text))
        elif detail["type"] == "missing":
            found.append(Violation(at=where[:-1], is_key=True, text=f"{path_text(where)} is missing"))
        else:
            rule = _RULES.get(detail["type"])
            must = f"must be {rule.format(**context)}" if rule else f"is refused: {detail['msg']}"
            text = f"{path_text(where) or 'the top level'} {must}, got {value_text(detail['input'])}"
            found.append(Violation(at=where, is_key=False, text=text))
    return tuple(found)


def path_text(at: At) -> str:
    """Return a place as people write it: ``suites.smoke.rows[0].M``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).removeprefix(".")


def value_text(value: object) -> str:
    """Return a value as it reads in a message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

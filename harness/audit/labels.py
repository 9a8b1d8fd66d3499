"""Names that mean the same: ``owner rows`` and ``Owner``, ``ckpt-ES`` and ``ckpt ES``, ``NVIDIA H200`` and ``H200``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

EVERY = {"all", "all rows", "every", "total", "overall", "any"}
"""What a cell says that stands for all operations or all classes."""

OWNER, UNSORTED = "owner", "unsorted"
_FILLING = {"row", "rows", "order", "orders", "ordered", "routing", "routings", "group", "groups", "sizes", "shapes"}
"""Words beside a class that add nothing: ``owner rows``, ``unsorted routing``."""
_SAME_CLASS = {"sorted": OWNER, "descending": OWNER, "shuffled": UNSORTED}
_CLASSES = {OWNER, UNSORTED, *_SAME_CLASS}
_MAKERS = {"nvidia", "amd", "intel", "gpu", "card"}
"""What may stand before a GPU's name or not."""
_ARCH = re.compile(r"\bsm_?\d+\w*|\bgfx\w+")


def words(text: str) -> tuple[str, ...]:
    """Return a name's words in lower case; dashes, underscores and brackets part them."""
    return tuple(re.findall(r"[^\W_]+", text.lower()))


def class_of(label: str) -> str:
    """Return a class's name in one form: ``owner`` of ``Owner rows``; what stands for all of them is empty."""
    found = tuple(word for word in words(label) if word not in _FILLING)
    if label.lower() in EVERY or found in {(word,) for word in EVERY}:
        return ""
    return _SAME_CLASS.get(" ".join(found), " ".join(found))


def is_synonym(label: str) -> bool:
    """Return whether a label says a class by another word, which may mean something else."""
    return any(word in _SAME_CLASS for word in words(label))


def is_class(label: str) -> bool:
    """Return whether a cell can be nothing but a row class, or all of them."""
    return label.lower() in EVERY or any(word in _CLASSES for word in words(label))


def split(label: str, ops: Collection[str]) -> tuple[str, str] | None:
    """Return the operation at the beginning or end of ``dW owner``, and the rest; None where it has no known one."""
    of = words(label)
    for op in sorted(ops, key=lambda op: -len(words(op))):
        n = len(words(op))
        if n and of[:n] == words(op):
            return op, " ".join(of[n:])
        if n and of[-n:] == words(op):
            return op, " ".join(of[:-n])
    return None


def short(gpu: str) -> str:
    """Return a GPU's name without its parentheses: ``Rubin`` of ``Rubin (sm_107a)``."""
    return re.sub(r"\s*\(.*", "", gpu)


def without_maker(gpu: str) -> str:
    """Return a GPU's name without parentheses and maker: ``H200`` of ``NVIDIA H200 (sm_90a)``."""
    return " ".join(word for word in short(gpu).split() if word.lower() not in _MAKERS)


def gpu_of(cell: str, above: Sequence[str], labels: Sequence[str]) -> str:
    """Return the geomean table's name of a row's GPU, from the row's cell, else from the headings above its table.

    A cell with an architecture that is none of theirs is a GPU of its own, whatever stands above it.
    """
    if not labels:
        return cell
    near = _called(cell, labels) if cell else []
    if len(near) == 1:
        return near[0]
    if not near and archs(cell) and all(archs(label) for label in labels):
        return cell
    for text in above:
        found = _called(text, near or labels)
        if len(found) == 1:
            return cell if archs(cell) and archs(text) and not archs(cell) & archs(text) else found[0]
    return cell or (labels[0] if len(labels) == 1 else "")


def says_gpu(cell: str, gpu: str) -> bool:
    """Return whether a row's cell is a name of the GPU that its row was taken for."""
    return not cell or bool(_called(cell, [gpu])) or (bool(archs(cell)) and not archs(gpu))


def _called(text: str, labels: Sequence[str]) -> list[str]:
    """Return the labels that a text may mean.

    They are the same, else have most words of their names in it, else have it in their names, else its architecture.
    """
    if same := [label for label in labels if label.lower() == text.lower()]:
        return same
    of = set(words(text))
    named = {label: set(words(without_maker(label)) or words(short(label))) for label in labels}
    holding = [label for label in labels if named[label] and named[label] <= of]
    if holding:
        most = max(len(named[label]) for label in holding)
        return [label for label in holding if len(named[label]) == most]
    own = set(words(without_maker(text)))
    if inside := [label for label in labels if own and own <= named[label]]:
        return inside
    return [label for label in labels if archs(text) & archs(label)]


def archs(text: str) -> set[str]:
    """Return the architectures that a name holds: ``sm_107a``."""
    return set(_ARCH.findall(text.lower()))

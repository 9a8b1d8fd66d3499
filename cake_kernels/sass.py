"""A kernel's machine code as blocks and loops, read from the flow graph that nvdisasm draws. Text only.

The graph, not the listing: ptxas moves the rare half of a wait to the function's end, and the branch back from there
looks, by address, like a loop over everything between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import CakeError

_FUNCTION = re.compile(r'^subgraph "cluster_([^"\n]+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r'^"(.+)"\n\[label="\{<entry>(.*)\}"\]$', re.MULTILINE)
_EDGE = re.compile(r'^"(.+)":\w+:\w -> "(.+)":\w+:\w ', re.MULTILINE)
_LINE_END = re.compile(r"\\l|\|<exit\d+>")
_INSTRUCTION = re.compile(r"(?:@!?\w+\s+)?([A-Z][\w.]*)(?=[\s;])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Instructions that run one after another.

    Attributes
    ----------
    opcodes
        With their modifiers: ``HGMMA.64x256x16.F32.BF16``.
    successors
        The blocks that may run next. A call is followed by what it returns to.
    """

    opcodes: tuple[str, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A natural loop: the blocks from which its header is reached again without leaving it.

    Attributes
    ----------
    header
        Label of the block by which alone it is entered.
    opcodes
        Of all its blocks, loops inside (a wait's) included; each instruction once.
    """

    header: str
    opcodes: tuple[str, ...]

    @property
    def instructions_per_hgmma(self) -> float:
        """Instructions as they stand in the code, not as they run, over those that are HGMMA."""
        return len(self.opcodes) / sum(is_a(opcode, "HGMMA") for opcode in self.opcodes)


def is_a(opcode: str, *names: str) -> bool:
    """Whether ``opcode`` is one of ``names``, whatever its modifiers."""
    return opcode.split(".")[0] in names


def read_flow(graph: str, *, symbol: str) -> dict[str, Block]:
    """Return label -> block of the kernel ``symbol``, its first block first.

    Parameters
    ----------
    graph
        What ``nvdisasm --output-control-flow-graph-with-basic-blocks`` prints.

    Raises
    ------
    CakeError
        There is no such kernel in it.
    """
    bodies = dict(_FUNCTION.findall(graph))
    if symbol not in bodies:
        raise CakeError(f"nvdisasm must show the kernel {symbol!r}, it shows {', '.join(bodies) or 'none'}")
    body = bodies[symbol]
    successors: dict[str, list[str]] = {}
    for source, target in _EDGE.findall(body):
        successors.setdefault(source, []).append(target)
    return {
        label: Block(opcodes=_opcodes(text), successors=tuple(successors.get(label, ())))
        for label, text in _BLOCK.findall(body)
    }


def consumer_loops(blocks: Mapping[str, Block]) -> tuple[Loop, ...]:
    """Return the innermost loops that hold an HGMMA: those of the consumers over the reduction.

    A loop is natural: an edge leads from it back to a header through which every path to that edge goes. Code that
    ptxas peeled off (a first or last k-block) is outside.
    """
    bodies = {header: body for header, body in _natural_loops(blocks).items() if _has_hgmma(blocks, body)}
    innermost = {h: body for h, body in bodies.items() if not any(other < body for other in bodies.values())}
    return tuple(
        Loop(header=header, opcodes=tuple(op for label in blocks if label in body for op in blocks[label].opcodes))
        for header, body in innermost.items()
    )


def _opcodes(text: str) -> tuple[str, ...]:
    lines = (line.replace("\\", "").strip() for line in _LINE_END.split(text))
    return tuple(found[1] for line in lines if (found := _INSTRUCTION.match(line)))


def _has_hgmma(blocks: Mapping[str, Block], body: set[str]) -> bool:
    return any(is_a(opcode, "HGMMA") for label in body for opcode in blocks[label].opcodes)


def _natural_loops(blocks: Mapping[str, Block]) -> dict[str, set[str]]:
    """Return header -> the loop's blocks."""
    before = _predecessors(blocks)
    dominators = _dominators(blocks, before)
    loops: dict[str, set[str]] = {}
    for label, block in blocks.items():
        for header in set(block.successors) & dominators[label]:
            body = loops.setdefault(header, {header})
            reach = [label]
            while reach:
                if (inside := reach.pop()) not in body:
                    body.add(inside)
                    reach += before[inside]
    return loops


def _predecessors(blocks: Mapping[str, Block]) -> dict[str, list[str]]:
    before: dict[str, list[str]] = {label: [] for label in blocks}
    for label, block in blocks.items():
        for successor in block.successors:
            before[successor].append(label)
    return before


def _dominators(blocks: Mapping[str, Block], before: Mapping[str, list[str]]) -> dict[str, set[str]]:
    """Return label -> the blocks that every path from the kernel's entry, or a function's, to it goes through."""
    entry = next(iter(blocks))
    dominators = {label: set(blocks) if before[label] and label != entry else {label} for label in blocks}
    changed = True
    while changed:
        changed = False
        for label in blocks:
            if before[label] and label != entry:
                found = set.intersection(*(dominators[other] for other in before[label])) | {label}
                changed = changed or found != dominators[label]
                dominators[label] = found
    return dominators

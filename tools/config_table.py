"""Which configuration is fastest in each row of run files, and what ``choose`` loses against it: no GPU.

::

    python -m tools.config_table reports/h200/configs/*.json
    python -m tools.config_table --fit reports/h200/configs/*.json     # and what the constants rest on
    python -m tools.config_table --commands | bash                     # on an H200: measures anew, and makes the table

The run files hold arms ``cake_det@CONFIGURATION``. A cell is the time of the row's fastest configuration over that of
the column's, each the median over the row's groups; the chosen one's is bold. Cards differ, so that times are compared
within a file: a row that several files hold is joined through the configurations that they share. What ``choose`` loses
is the time of the configuration it chooses over that of the fastest, of the rows in which the chosen one was measured.

With ``--fit``: the rates that lose least, and what a chunk of a split tile costs its cluster, in k-blocks. It is from
pairs of configurations with the same MMA tile and as many clusters, in one row of one run, where the busiest cluster of
one has ``MORE_CHUNKS`` chunks or more above the other's: what their times less their makespans differ by, over these.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, product
from pathlib import Path
from statistics import median

from cake_kernels.grouped_gemm.sm90.config import (
    BLOCK_K,
    CHUNK_K_BLOCKS,
    CONFIGS,
    RATES,
    STRAIGHT,
    SWAPPED,
    Config,
    choose,
    whole_slabs,
    work,
)
from cake_kernels.registry import Op
from harness import runfile
from harness.errors import RunFileError
from harness.model.case import Case
from harness.model.run import Row, Run
from harness.stats.geomean import geomean
from tools.makespan import planned

PREFIX = "cake_det@"
OPS: dict[str, Op] = {"fwd": "fwd", "dX": "dgrad", "dW": "wgrad"}
GRID = tuple(n / 100 for n in range(90, 111))
"""The rates that ``--fit`` tries."""

MORE_CHUNKS = 4
"""Fewest chunks by which a pair differs: with fewer, what else the two differ by would count for much."""

MACS_PER_CLOCK = 2048
"""Dense BF16 multiply-adds of an SM: a k-block of 256 x 192 takes 1536 cycles."""

REPORTS = "reports/h200/configs"
"""Where the runs of :func:`commands` and their table lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is compared: one case in one regime, on devices with equally many SMs."""

    case: Case
    regime: str
    sms: int

    @property
    def op(self) -> Op:
        """The operation as kernels name it."""
        return OPS[self.case.op]

    @property
    def chosen(self) -> Config:
        """What :func:`choose` returns."""
        shape = self.case.shape
        return choose(self.op, M=shape.M, N=shape.N, K=shape.K, E=shape.E, sms=self.sms)

    def work(self, config: Config) -> float:
        """Return the estimate of :func:`.config.work`."""
        shape = self.case.shape
        return work(config, self.op, M=shape.M, N=shape.N, K=shape.K, E=shape.E, sms=self.sms)

    @property
    def cost_decides(self) -> bool:
        """Whether :func:`choose` makes no exception."""
        shape = self.case.shape
        chosen = replace(self.chosen, tail="plain")
        return chosen in RATES[self.op] and whole_slabs(self.op, N=shape.N, K=shape.K)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What the estimate says of a configuration, and what was measured: the time over that of the row's fastest."""

    work: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A row of the table.

    Attributes
    ----------
    times
        Name of a configuration -> its time over that of the fastest.
    """

    key: Key
    times: dict[str, float]

    @property
    def regret(self) -> float | None:
        """The chosen configuration's time over that of the fastest; None if the chosen one was not measured."""
        return self.times.get(self.key.chosen.name)

    @property
    def candidates(self) -> dict[Config, Candidate]:
        """Those of ``RATES`` that were measured, where their cost decides; else none."""
        key = self.key
        if not key.cost_decides:
            return {}
        names = {config: replace(config, tail=key.chosen.tail).name for config in RATES[key.op]}
        return {
            config: Candidate(work=key.work(config), time=self.times[name])
            for config, name in names.items()
            if name in self.times
        }


def compare(runs: Sequence[Run]) -> tuple[Compared, ...]:
    """Return every row that has configurations, by operation and regime and else as they stand in the runs.

    Raises
    ------
    RunFileError
        Two runs hold a row and share no configuration of it.
    """
    parts: dict[Key, list[dict[str, float]]] = defaultdict(list)
    for run in runs:
        for row in run.rows:
            if times := configurations(row):
                key = Key(case=row.case, regime=row.regime, sms=run.machines[row.machine].units)
                parts[key].append(times)
    ordered = sorted(parts.items(), key=lambda item: (list(OPS).index(item[0].case.op), item[0].regime))
    return tuple(Compared(key=key, times=joined(key.case.case_id, times)) for key, times in ordered)


def configurations(row: Row) -> dict[str, float]:
    """Return configuration -> its median span in ``row``, in nanoseconds."""
    return _medians(row, row.samples.span_ns)


def _medians(row: Row, column: Iterable[int | None]) -> dict[str, float]:
    """Return configuration -> its median of a column of the samples, of those that have a value there."""
    values: dict[str, list[int]] = defaultdict(list)
    for arm, value in zip(row.samples.arm, column, strict=True):
        if arm.startswith(PREFIX) and value is not None:
            values[arm.removeprefix(PREFIX)].append(value)
    return {name: median(each) for name, each in values.items()}


def joined(case_id: str, parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return configuration -> its time over that of the fastest, from the times of one row in several runs.

    Each part is scaled by the geomean of the ratios of what it shares with those before it, whose times stay; the
    part with most configurations comes first.

    Raises
    ------
    RunFileError
        A part shares no configuration with those before it.
    """
    first, *rest = sorted(parts, key=len, reverse=True)
    times = dict(first)
    for part in rest:
        shared = [times[name] / part[name] for name in part if name in times]
        if not shared:
            raise RunFileError(
                f"{case_id}: run files that hold one row must share a configuration of it, got {', '.join(part)}"
                f" beside {', '.join(times)}; measure one of these again with those"
            )
        scale = geomean(shared)
        times = {name: scale * time for name, time in part.items()} | times
    fastest = min(times.values())
    return {name: time / fastest for name, time in times.items()}


def table(rows: Sequence[Compared]) -> str:
    """Return the Markdown table of one operation in one regime."""
    columns = sorted({name for row in rows for name in row.times} | {row.key.chosen.name for row in rows})
    lines = [
        "| row | N | K | rows a group | fastest | " + " | ".join(columns) + " |",
        "|---|---|---|---|---|" + "---|" * len(columns),
    ]
    for row in rows:
        shape = row.key.case.shape
        facts = (
            row.key.case.name,
            shape.N,
            shape.K,
            round(shape.M / shape.E),
            min(row.times, key=row.times.__getitem__),
        )
        lines.append("| " + " | ".join(map(str, (*facts, *_cells(row, columns)))) + " |")
    return "\n".join(lines)


def _cells(row: Compared, columns: Sequence[str]) -> Iterator[str]:
    for name in columns:
        text = f"{1 / row.times[name]:.3f}" if name in row.times else "–"
        yield f"**{text}**" if name == row.key.chosen.name else text


def regrets(rows: Sequence[Compared]) -> str:
    """Return the Markdown table of what ``choose`` loses, per operation and regime."""
    lines = ["| operation | regime | rows | geomean | worst | row of the worst |", "|---|---|---|---|---|---|"]
    for (op, regime), members in by_table(rows):
        known = [(row.regret, row.key.case.name) for row in members if row.regret is not None]
        cells = ("–", "–", "–")
        if known:
            worst, name = max(known)
            cells = (f"{geomean([regret for regret, _ in known]):.4f}", f"{worst:.3f}", name)
        lines.append(f"| {op} | {regime} | {len(known)} of {len(members)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sources(runs: Sequence[Run]) -> str:
    """Return a line for each kind of GPU, timer and revision, with the runs that have it."""
    names: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        products = ", ".join(dict.fromkeys(machine.product for machine in run.machines))
        names[f"- {products}; {run.heading}; revision {run.revision}"].append(run.run_id)
    return "\n".join(f"{line}; run {', '.join(ids)}" for line, ids in names.items())


def by_table(rows: Sequence[Compared]) -> Iterator[tuple[tuple[str, str], list[Compared]]]:
    """Yield (operation, regime) and its rows."""
    for key, members in groupby(rows, key=lambda row: (row.key.case.op, row.key.regime)):
        yield key, list(members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The rates under which the cheapest candidate loses least.

    Attributes
    ----------
    rates
        Of the candidates that were measured; of equal regrets those closest to the rates in use.
    regret
        Of ``rates``: geomean over the rows, against the fastest candidate.
    used
        The same of the rates in use.
    rows
        Those in which the cost decides and two candidates or more were measured.
    """

    rates: dict[Config, float]
    regret: float
    used: float
    rows: int


def fit(rows: Sequence[Compared]) -> Fit | None:
    """Return the best rates on :data:`GRID` for ``rows``, whose operations share theirs; None if no row can tell.

    SWAPPED, of whose rate the others are multiples, keeps 1.
    """
    known = [candidates for row in rows if len(candidates := row.candidates) > 1]
    if not known:
        return None
    used = RATES[rows[0].key.op]
    seen = [config for config in used if any(config in candidates for candidates in known)]
    steps = [(1.0,) if config == SWAPPED else GRID for config in seen]
    grid = [dict(zip(seen, rates, strict=True)) for rates in product(*steps)]
    best = min(
        grid,
        key=lambda rates: (
            round(regret_of(rates, known), 9),
            sum(abs(rates[config] - used[config]) for config in seen),
            tuple(rates.values()),
        ),
    )
    return Fit(rates=best, regret=regret_of(best, known), used=regret_of(used, known), rows=len(known))


def regret_of(rates: Mapping[Config, float], rows: Sequence[Mapping[Config, Candidate]]) -> float:
    """Return the geomean of the cheapest candidate's time over that of the fastest."""

    def regret(candidates: Mapping[Config, Candidate]) -> float:
        cheapest = min(candidates, key=lambda config: candidates[config].work / rates[config])
        return candidates[cheapest].time / min(one.time for one in candidates.values())

    return geomean([regret(candidates) for candidates in rows])


def fits(rows: Sequence[Compared]) -> str:
    """Return the Markdown table of the fitted rates; operations with the same rates are fitted together."""
    lines = ["| operations | rows | regret with the rates in use | fitted | rates |", "|---|---|---|---|---|"]
    for ops in (("fwd", "dX"), ("dW",)):
        found = fit([row for row in rows if row.key.case.op in ops])
        if found is not None:
            rates = ", ".join(f"{config.name} {rate:.2f}" for config, rate in found.rates.items())
            lines.append(f"| {', '.join(ops)} | {found.rows} | {found.used:.4f} | {found.regret:.4f} | {rates} |")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One configuration in one row of dW.

    Attributes
    ----------
    chunks
        Chunks of split tiles of the cluster that has most of them.
    makespan
        Of the plan, in k-blocks.
    time
        The median span at the median clock of its samples, in k-blocks of its tile.
    """

    config: Config
    clusters: int
    chunks: int
    makespan: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two configurations with the same tile and as many clusters, in one row of one run."""

    case: Case
    more: Split
    fewer: Split

    @property
    def per_chunk(self) -> float:
        """What a chunk costs the cluster, in k-blocks."""
        beside = (self.more.time - self.more.makespan) - (self.fewer.time - self.fewer.makespan)
        return beside / (self.more.chunks - self.fewer.chunks)


def pairs(runs: Sequence[Run]) -> tuple[Pair, ...]:
    """Return the pairs that tell what a chunk costs: they differ by ``MORE_CHUNKS`` or more."""
    found = []
    for run in runs:
        for row in run.rows:
            for two in combinations(_splits(row, run.machines[row.machine].units), 2):
                fewer, more = sorted(two, key=lambda one: one.chunks)
                if _comparable(fewer, more) and more.chunks - fewer.chunks >= MORE_CHUNKS:
                    found.append(Pair(case=row.case, more=more, fewer=fewer))
    return tuple(found)


def _splits(row: Row, sms: int) -> Iterator[Split]:
    """Yield the configurations of ``row`` that have slots and a clock, if it is one of dW."""
    spans, clocks = configurations(row), _medians(row, row.samples.clock_mhz)
    for name in clocks:
        config = Config.named(name)
        if row.case.op != "dW" or config.tail != "slots":
            continue
        plan = planned(row.case, config, sms, split=True)
        cycles = config.tile_m * config.tile_n * BLOCK_K / MACS_PER_CLOCK
        yield Split(
            config=config,
            clusters=plan.clusters,
            chunks=max(sum(chunk.of > 1 for chunk in chunks) for chunks in plan.chunks),
            makespan=plan.makespan,
            time=spans[name] * clocks[name] / 1000 / cycles,
        )


def _comparable(a: Split, b: Split) -> bool:
    tiles = {(one.config.tile_m, one.config.tile_n, one.config.cluster_size, one.clusters) for one in (a, b)}
    return len(tiles) == 1


def chunk_costs(found: Sequence[Pair]) -> str:
    """Return the Markdown table of the pairs, of which there is one at least, and what they say together."""
    lines = [
        "| row | clusters | more | fewer | chunks | makespan | time | k-blocks a chunk |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pair in found:
        more, fewer = pair.more, pair.fewer
        facts = (
            pair.case.name,
            more.clusters,
            more.config.name,
            fewer.config.name,
            f"{more.chunks}, {fewer.chunks}",
            f"{more.makespan}, {fewer.makespan}",
            f"{more.time:.1f}, {fewer.time:.1f}",
            f"{pair.per_chunk:.2f}",
        )
        lines.append("| " + " | ".join(map(str, facts)) + " |")
    costs = [pair.per_chunk for pair in found]
    rows = len({pair.case for pair in found})
    lines.append(
        f"\nPairs: {len(found)}, of {rows} rows; k-blocks a chunk: {min(costs):.1f} to {max(costs):.1f},"
        f" median {median(costs):.1f}; `CHUNK_K_BLOCKS` in use: {CHUNK_K_BLOCKS}."
    )
    return "\n".join(lines)


def commands() -> Iterator[str]:
    """Yield lines of a shell: each run that the table is made of, and last the table."""
    for suite in ("moe-models", "moe-small-experts"):
        for op in OPS:
            yield _run(f"{suite}-{op}", op, RATES["wgrad"] if op == "dW" else CONFIGS, suite=suite)
    for op in OPS:
        yield _run(f"training-{op}", op, RATES[OPS[op]], case="*E32 M131072 random")
        if op != "dW":
            both = (STRAIGHT, SWAPPED)
            yield _run(f"sustained-random-{op}", op, both, case="*E32 M131072 random", regime="sustained")
            yield _run(f"sustained-{op}", op, both, case="*E4 M112576 bal", regime="sustained")
    yield f"python -m tools.config_table --fit {REPORTS}/*.json > {REPORTS}/configs.md"


def _run(
    run_id: str,
    op: str,
    configs: Iterable[Config],
    *,
    suite: str = "moe-training",
    case: str | None = None,
    regime: str = "boost",
) -> str:
    named = [replace(config, tail="slots" if op == "dW" else "plain").name for config in configs]
    arms = ",".join(PREFIX + name for name in named)
    rows = ["--suite", suite, *(["--case", case] if case else []), "--op", op]
    how = ["--regime", regime, "--aa", "off", "--out", REPORTS, "--run-id", run_id, "--arm", arms]
    return shlex.join(["cake-bench", "run", *rows, *how])


def main() -> int:
    """Print the tables, or the commands that measure them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN.json")
    parser.add_argument("--fit", action="store_true", help="also print what the constants rest on")
    parser.add_argument("--commands", action="store_true", help="print what measures and makes the table, for | bash")
    options = parser.parse_args()
    if options.commands:
        if options.runs or options.fit:
            parser.error("--commands takes neither run files nor --fit")
        print("\n".join(commands()))
        return 0
    if not options.runs:
        parser.error("name run files, or give --commands")
    try:
        runs = [runfile.load(path) for path in options.runs]
        rows = compare(runs)
    except RunFileError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"# Configurations of cake_det, and what choose loses\n\n{sources(runs)}\n")
    print("Time of the row's fastest configuration over that of the column's; bold: the chosen one.\n")
    for (op, regime), members in by_table(rows):
        print(f"## {op}, {regime}\n\n{table(members)}\n")
    print(f"## What `choose` loses\n\n{regrets(rows)}")
    if options.fit:
        print(f"\n## Fit\n\n{fits(rows)}")
        if found := pairs(runs):
            print(f"\n## What a chunk costs\n\n{chunk_costs(found)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The page ``json``: the table of rounds for programs, as strict JSON; null is what is not known. Times in ns."""

from __future__ import annotations

import json

from harness.pages.rounds.fields import cell_fields
from harness.pages.rounds.summary import Table


def render_page(table: Table) -> str:
    """Return the table as JSON, keys in a fixed order, UTF-8, one value a line."""
    run = table.run
    page: dict[str, object] = {
        "run": run.run_id,
        "started": run.started,
        "revision": run.revision,
        "method_version": run.method_version,
        "plan": run.plan.model_dump(mode="json", exclude={"cases"}),
        "rounds_done": len(run.done),
        "machines": run.model_dump(mode="json", include={"machines"})["machines"],
        "cells": [{**cell_fields(table, cell), "reasons": dict(cell.reasons)} for cell in table.cells],
        "failures": [
            played.model_dump(mode="json", include={"index", "first", "failure", "failed_ranks"})
            for played in table.failures
        ],
    }
    return json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

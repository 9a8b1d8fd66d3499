"""Which numbers of a page's prose are results, so that one that no check reads is named.

Others (sizes, versions, dates, clocks, settings) are claims about the measurement, and rows cannot recompute them.
"""

from __future__ import annotations

import re

_ABOUT = re.compile(
    r"\b(?:rows?|geomeans?|geometric|means?|averages?|medians?|speedups?|slowdowns?|spreads?|ratios?|gains?|loss(?:es)?"
    r"|regress\w*|improv\w*|lowest|highest|largest|smallest|biggest|greatest|least|best|worst|fastest|slowest|faster"
    r"|slower|quicker|below|above|under|percentiles?|p\d\d|min|max|minimum|maximum|wholly|vs|versus|against)\b"
)
"""What a clause speaks of in which every decimal number and every percentage is a result."""
_SIDE = re.compile(
    r"\b(?:below|above|under|over|at least|at most|faster|slower|regress\w*|los(?:e|es|t)|losses|wins?|won"
    r"|gain(?:s|ed)?|improv\w*|better|worse|beats?|beaten|exceed\w*|wholly|drop(?:s|ped)?|reach(?:es)?|neutral|tied?)\b|[<>≤≥]=?\s*[01]\b"
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)*")
_NAMED_BEFORE = re.compile(
    r"(?:\b(?:cuda|torch|pytorch|python|driver|triton|cudnn|cupti|cublas|nccl|nvcc|gcc|ptx|numpy|version|revision"
    r"|release|method|section|table|figure|step|seed|cv|sigma)|\b[\w-]*(?:cudnn|cupti|cublas|nvidia)[\w-]*|\bv|[§σ])"
    r"\s*[:=(]?\s*$"
)
"""What stands before a version or a setting."""
_UNIT = re.compile(
    r"\s*(?:[kmgt]?hz|[kmgt]i?b(?:/s)?|w|watts?|°c|sms?|bytes?|bits?|cores?|gpus?|threads?|joules?|j|tflops?|seconds?"
    r"|minutes?|hours?|days?)\b"
)
_TIME = re.compile(r"\s*(?:[nuµμm]s|s)\b")
_TIMES = re.compile(r"\s*[x×](?!\s*\w)|\s*(?:[x×]|times)\s+(?:as|faster|slower|the|on|over|vs)\b")
_PERCENT = re.compile(r"\s*(?:%|percent\b|pp\b)")
_MANY = (
    r"(?:\d+|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|all|both|each|every|none|no|most|half"
    r"|many|few|several|majority|thirds?|quarters?)"
)
_COUNT = re.compile(
    rf"(?<![\w.-]){_MANY}\b(?!\.\d)[^.;:,()×]{{0,40}}?\b(?:rows?|cases?|shapes?|workloads?|sizes)\b"
    rf"|(?<![\w.-])\d+\s*(?:of|/)\s*(?:the\s+|all\s+)?(?:\d+|them|these|those)\b"
)
_RATIO_ENDS = (0.5, 3.0)
_RATIO_DECIMALS = 3


def results(clause: str, unread: str, *, names: bool = False) -> list[str]:
    """Return the results in ``unread``: a clause in lower case, with blanks for names and for what checks have read.

    A result is a decimal number or a percentage in a clause that speaks of rows, ratios, geomeans, spreads and the
    like, or ``names`` a baseline or an operation; a ratio (three decimals, 0.5 to 3.0, or ``x`` behind it), a time
    with decimals and a signed percentage anywhere; a count of rows on a side.
    """
    about = names or _ABOUT.search(clause) is not None
    found = [number[0] for number in _NUMBER.finditer(unread) if _is_result(number, unread, about=about)]
    if _SIDE.search(clause):
        found += [" ".join(count[0].split()) for count in _COUNT.finditer(unread)]
    return list(dict.fromkeys(found))


def _is_result(number: re.Match[str], text: str, *, about: bool) -> bool:
    before, behind = text[: number.start()], text[number.end() :]
    parts = number[0].split(".")
    if len(parts) > 2 or _NAMED_BEFORE.search(before) or _UNIT.match(behind):
        return False
    if _TIMES.match(behind) or (len(parts) == 2 and _TIME.match(behind)):
        return True
    if re.match(r"[^\W\d]|\+\w", behind) and not re.match(r"[nuµμm]?s\b|[x×]", behind):
        return False
    if _PERCENT.match(behind):
        return about or before.rstrip().endswith(("+", "-", "−", "±"))
    if about and len(parts) == 2:
        return True
    low, high = _RATIO_ENDS
    return len(parts) == 2 and len(parts[1]) == _RATIO_DECIMALS and low <= float(number[0]) <= high

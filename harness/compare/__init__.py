"""Two revisions held against each other, row by row: pairing, verdicts, reason codes. Pure: runs in, a Comparison out.

``interleaved`` compares both sides of one run, ``stored`` the sides of two; ``judge`` is the only place that knows when
a row is faster, slower or neither.
"""

"""Doctor: whether this machine measures what it says it measures.

One check a file. Its ``read_...`` touches the machine and returns a reading, a frozen dataclass; its ``judge...`` is
pure, from that reading to a :class:`~harness.doctor.finding.Finding`, so that every verdict can be made again from the
JSON, and is tested without a GPU. :mod:`harness.doctor.checks` has them in the order in which they must run.
"""

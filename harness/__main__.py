"""``python -m harness`` is ``cake-bench``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        # Here, so that a Ctrl-C while it imports is answered as it is later.
        from harness.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()

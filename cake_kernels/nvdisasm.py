"""nvdisasm, which shows a cubin's machine code. The only place that calls it; needs no GPU."""

from __future__ import annotations

import subprocess
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from .errors import CakeError, ToolchainMissingError

WHEEL = "nvidia-cuda-nvdisasm"


class Nvdisasm:
    """The program as its wheel brings it; one elsewhere on the machine, of whatever version, is not looked for.

    Raises
    ------
    ToolchainMissingError
        The wheel is not installed.
    """

    def __init__(self) -> None:
        try:
            found = [Path(str(file.locate())) for file in files(WHEEL) or () if file.stem == "nvdisasm"]
        except PackageNotFoundError:
            found = []
        if not found:
            raise ToolchainMissingError(f"{WHEEL} is not installed; pip install {WHEEL}, or the extra 'dev'")
        self._program = found[0]

    def flow_graph(self, cubin: Path) -> str:
        """Return the flow graph of every kernel in the file ``cubin``, in the language of graphviz.

        Raises
        ------
        CakeError
            nvdisasm refuses the file; the message has its reason.
        """
        asked = [str(self._program), "--output-control-flow-graph-with-basic-blocks", str(cubin)]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CakeError(f"nvdisasm refuses {cubin}: {done.stderr.strip()}")
        return done.stdout

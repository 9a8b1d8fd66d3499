"""Puts ``shapes.yaml`` and ``templates/``, which lie at the top of a checkout, into the wheel as ``harness/data``."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TOP = Path(__file__).parent


class BuildWithData(build_py):
    """``build_py`` that also copies the data; an editable install reads it where it lies."""

    def run(self) -> None:
        """Build, then copy unless the build is editable."""
        super().run()
        if self.editable_mode:
            return
        data = Path(self.build_lib) / "harness" / "data"
        shutil.copytree(TOP / "templates", data / "templates", dirs_exist_ok=True)
        shutil.copy2(TOP / "shapes.yaml", data / "shapes.yaml")


setup(cmdclass={"build_py": BuildWithData})

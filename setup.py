"""The build step that pyproject.toml cannot express: a wheel has the records of figures/records in its package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithRecords(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shipped = Path(self.build_lib, "palslib", "shipped", "records")
            shutil.rmtree(shipped, ignore_errors=True)  # left by an earlier build
            shutil.copytree("figures/records", shipped, ignore=shutil.ignore_patterns("*.md"))


setup(cmdclass={"build_py": WithRecords})

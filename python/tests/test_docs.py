"""The examples of docs/python.md, run one after the other. Only example.org is another server here."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
NEEDS = ("zarr", "fsspec", "aiohttp", "requests", "pandas", "pyarrow", "numpy")

missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")

PREPARE = """
import sys

sys.path[:0] = {path!r}
import conftest  # fsspec finds holdall
"""


def blocks():
    """Language and text of each block of code on the page."""
    return re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text("utf-8"))


def test_the_examples_run(tmp_path, holdall_command, serve):
    import zarr

    three = {} if zarr.__version__ < "3" else {"zarr_format": 2}
    recording = zarr.open_group(str(tmp_path / "recording"), mode="w", **three)
    array = recording.require_group("units").create_array("spike_times", shape=(5000,), chunks=(500,), dtype="f8")
    array[:] = range(5000)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "holdall").symlink_to(holdall_command)
    (programs / "pip").write_text("#!/bin/sh\n")  # what it would install is installed
    (programs / "pip").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    pack = ["holdall", "pack", "-q", "-f", "lindi", "-o", "recording.lindi.tar", "recording"]
    subprocess.run(pack, check=True, cwd=tmp_path, env=environment)

    # Blocks of Python are one program, in which the commands between them are run.
    program, ran = [PREPARE.format(path=[*sys.path, str(pathlib.Path(__file__).parent)])], []
    for language, text in blocks():
        ran.append(language)
        text = text.replace("https://example.org", serve(tmp_path))
        program.append(text if language == "python" else f"import subprocess\nsubprocess.run({text!r}, shell=True, check=True)\n")
    assert ran.count("python") > 10 and ran.count("sh") > 3 and set(ran) == {"python", "sh"}
    (tmp_path / "page.py").write_text("\n".join(program))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Wheels: what is in them, that they are the same each time, and that they install."""

import base64
import hashlib
import os
import pathlib
import platform
import subprocess
import sys
import zipfile

import pytest

HERE = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(HERE))

import backend  # noqa: E402

NATIVE = f"{sys.platform.replace('win32', 'windows')}/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(m := platform.machine().lower(), m) }"


def build(out, *platforms):
    command = [sys.executable, str(HERE / "build"), "-o", str(out), *platforms]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel for this platform; HOLDALL_WHEEL names one that is made already."""
    if made := os.environ.get("HOLDALL_WHEEL"):
        return pathlib.Path(made)
    (made,) = build(tmp_path_factory.mktemp("wheel"), NATIVE)
    return pathlib.Path(made)


def check(path):
    """The names in a wheel, whose record is right."""
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        names = z.namelist()
        (record,) = (name for name in names if name.endswith("/RECORD"))
        rows = [row.split(",") for row in z.read(record).decode().split()]
        assert sorted(name for name, *_ in rows) == sorted(names)
        for name, digest, size in rows:
            if name != record:
                content = z.read(name)
                sha = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={sha}", str(len(content)))
    return names


def test_the_pure_wheel(tmp_path):
    (made,) = build(tmp_path, "any")
    version = backend.project()["version"]
    assert pathlib.Path(made).name == f"holdall-{version}-py3-none-any.whl"
    names = check(made)
    here = {f"holdall/{path.name}" for path in (HERE / "src" / "holdall").glob("*.py")}
    assert here | {"holdall/py.typed"} == {name for name in names if name.startswith("holdall/")}
    assert not any(".data/" in name for name in names)


def test_the_same_input_gives_the_same_bytes(wheel, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        build(tmp_path / name, "any")
        backend.build_sdist(str(tmp_path / name))
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert len(one) == 2 and one == two
    # The command's bytes are Go's: a second wheel of the same command is the same.
    with zipfile.ZipFile(wheel) as z:
        (script,) = (name for name in z.namelist() if ".data/scripts/" in name)
        scripts = {pathlib.PurePosixPath(script).name: (z.read(script), 0o755)}
    tag = wheel.name.removesuffix(".whl").split("-", 2)[2]
    name = backend.write_wheel(tmp_path, backend.package(), tag, scripts)
    assert name == wheel.name and (tmp_path / name).read_bytes() == wheel.read_bytes()


def test_a_wheel_gives_the_command_and_the_package(wheel, tmp_path):
    check(wheel)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    programs = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    python = [programs / "python", "-I", "-W", "error"]
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    assert "blake3" in subprocess.run([*pip, wheel], capture_output=True, text=True).stderr  # it is needed, and there is no index
    subprocess.run([*pip, "--no-deps", wheel], check=True)

    def run(*command):
        return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("content")
    version = backend.project()["version"]
    assert run(programs / "holdall", "version").startswith(f"holdall {version} ")
    run(programs / "holdall", "pack", "-q", "-o", "x.caf", "files")
    run(programs / "holdall", "index", "-q", "x.caf")
    assert run(*python, "-c", "import holdall; a = holdall.open('x.caf', verify=False); print(a['a.txt'], a.index)") == (
        f"b'content' {'x.caf.holdall'}\n"
    )
    # The package runs the command that is installed with it.
    own = run(*python, "-c", "import os; os.environ.pop('HOLDALL', 0); os.environ['PATH'] = ''; import holdall.command as c; print(c.find(), c.verify('x.caf').verdict)")
    assert pathlib.Path(own.split()[0]).samefile(programs / ("holdall.exe" if os.name == "nt" else "holdall")) and own.split()[1] == "sound"
    assert run(*python, "-c", "import holdall; print(holdall.__version__)") == f"{version}\n"
    # Without blake3, reading is not silent.
    said = subprocess.run([*python[:2], "-c", "import holdall; print([holdall.open('x.caf')['a.txt'] for _ in 'ab'])"], cwd=tmp_path, capture_output=True, text=True)
    assert said.stdout == "[b'content', b'content']\n" and said.stderr.count("RuntimeWarning: x.caf: contents are not compared") == 1
    assert run(*python, "-c", "import importlib.metadata as m; print(m.version('holdall'))") == f"{version}\n"
    assert "holdall.fsspec:HoldallFileSystem" in run(
        *python, "-c", "import importlib.metadata as m; print(m.entry_points(group='fsspec.specs')['holdall'].value)"
    )


def test_pip_builds_the_package_with_nothing_but_python(tmp_path):
    """From the folder, from what build_sdist makes, and as a package that is worked on."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index", "--no-deps"]
    needs_tomli = sys.version_info < (3, 11)
    if needs_tomli:
        pip.append("--no-build-isolation")
    sdist = backend.build_sdist(str(tmp_path))
    made = []
    for n, what in enumerate((HERE, tmp_path / sdist)):
        subprocess.run([*pip, "-w", tmp_path / str(n), what], check=True)
        (path,) = (tmp_path / str(n)).iterdir()
        check(path)
        made.append(path.read_bytes())
    assert made[0] == made[1]
    editable = tmp_path / backend.build_editable(str(tmp_path))
    assert "holdall.pth" in check(editable)

"""Makes wheels of this folder with nothing but Python. It is the build backend in pyproject.toml.

A wheel is a zip with the package, and three files about it. With the same version of Python, the same input gives the
same bytes. The wheel of a platform also contains the command: see the script build.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import pathlib
import tarfile
import zipfile
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
PURE = "py3-none-any"

Files = dict[str, tuple[bytes, int]]  # content and mode by name


def project() -> dict[str, Any]:
    """Return what pyproject.toml says about the package."""
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        import tomli as tomllib
    return tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]


def metadata(p: dict[str, Any]) -> str:
    """Return the file METADATA."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {p['name']}",
        f"Version: {p['version']}",
        f"Summary: {p['description']}",
        f"Requires-Python: {p['requires-python']}",
        f"License-Expression: {p['license']}",
        "License-File: LICENSE",
        *(f"Requires-Dist: {need}" for need in p["dependencies"]),
    ]
    for extra, needs in p["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        for need in needs:
            name, _, marker = map(str.strip, need.partition(";"))
            lines.append(f"Requires-Dist: {name}; {f'({marker}) and ' if marker else ''}extra == '{extra}'")
    lines += ["Description-Content-Type: text/markdown", ""]
    return "\n".join(lines) + "\n" + (HERE / p["readme"]).read_text("utf-8")


def entry_points(p: dict[str, Any]) -> str:
    """Return the file entry_points.txt."""
    lines = []
    for group, points in p["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {what}" for name, what in points.items()), ""]
    return "\n".join(lines)


def package() -> Files:
    """Return the files of the package."""
    src = HERE / "src"
    paths = [path for path in src.rglob("*") if path.suffix == ".py" or path.name == "py.typed"]
    return {path.relative_to(src).as_posix(): (path.read_bytes(), 0o644) for path in paths}


def license_text() -> bytes:
    """Return the license, which is beside this folder, or within what build_sdist makes."""
    inside = HERE / "LICENSE"
    return (inside if inside.exists() else HERE.parent / "LICENSE").read_bytes()


def write_wheel(folder: str | pathlib.Path, files: Files, tag: str = PURE, scripts: Files | None = None) -> str:
    """Write a wheel of a package and optional programs, and return its name."""
    p = project()
    stem = f"{p['name']}-{p['version']}"
    info = f"{stem}.dist-info"
    python, abi, platforms = tag.split("-")
    wheel = ["Wheel-Version: 1.0", "Generator: holdall", f"Root-Is-Purelib: {str(tag == PURE).lower()}"]
    wheel += [f"Tag: {python}-{abi}-{platform}" for platform in platforms.split(".")]
    files = files | {f"{stem}.data/scripts/{name}": script for name, script in (scripts or {}).items()}
    texts = {"METADATA": metadata(p), "WHEEL": "\n".join(wheel) + "\n", "entry_points.txt": entry_points(p)}
    files |= {f"{info}/{name}": (text.encode(), 0o644) for name, text in texts.items()}
    files[f"{info}/licenses/LICENSE"] = license_text(), 0o644
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, (content, _) in sorted(files.items()))
    path = pathlib.Path(folder) / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, (content, mode) in [*sorted(files.items()), (f"{info}/RECORD", (f"{record}{info}/RECORD,,\n".encode(), 0o644))]:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, (0o100000 | mode) << 16
            out.writestr(entry, content)
    return path.name


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


# The functions of PEP 517 and PEP 660


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    return write_wheel(wheel_directory, package())


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    return write_wheel(wheel_directory, {"holdall.pth": (f"{HERE / 'src'}\n".encode(), 0o644)})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    p = project()
    stem = f"{p['name']}-{p['version']}"
    files = {f"src/{name}": content for name, (content, _) in package().items()}
    files |= {name: (HERE / name).read_bytes() for name in ("pyproject.toml", "backend.py", p["readme"])}
    files |= {"LICENSE": license_text(), "PKG-INFO": metadata(p).encode()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    name = f"{stem}.tar.gz"
    (pathlib.Path(sdist_directory) / name).write_bytes(gzip.compress(out.getvalue(), mtime=0))
    return name

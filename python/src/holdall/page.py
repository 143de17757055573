"""What a notebook shows of an archive: its contents, and where which kinds of files are stored."""

from __future__ import annotations

import mimetypes
import unicodedata
from collections.abc import Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from .tree import Tree

if TYPE_CHECKING:
    from .archive import Archive
    from .catalog import Folders

ROWS = 20  # of a folder
FOLDERS = 12  # folders that are shown with their contents
CELLS = 120  # of the map
LOOKED_AT = 2400  # files that the map considers

# The colours are those of the explorer.
KINDS = {
    "image": ("pictures", "#2f8f5b"),
    "audio": ("sound", "#b0477f"),
    "video": ("film", "#c2453a"),
    "text": ("text", "#5b6f86"),
    "application": ("data", "#a87410"),
    "array": ("arrays", "#0b8a88"),
    "": ("other", "#7b7f86"),
}


def html(archive: Archive) -> str:
    """Return an archive as HTML: a list of its top level, and a map. It has no script."""
    tree = archive.folders()
    if not isinstance(tree, Tree):  # counting takes a pass over all files
        return f'<div style="font:13px/1.5 system-ui,sans-serif;max-width:760px"><div><b>{_shown(archive.address)}</b> · {escape(archive.format)}</div>{_folder(archive, tree, "", [0])}</div>'
    files, size = len(archive), archive.bytes
    head = f"<b>{_shown(archive.address)}</b> · {escape(archive.format)} · {files:,} {'file' if files == 1 else 'files'} · {_size(size)}"
    proof = "contents are compared with their digests" if archive.verifies else f"contents are not compared: {_shown(archive.unverified)}"
    return (
        '<div style="font:13px/1.5 system-ui,sans-serif;max-width:760px">'
        f"<div>{head}</div><div style='opacity:.65'>{proof}</div>{_map(archive)}{_folder(archive, tree, '', [FOLDERS])}</div>"
    )


def _folder(archive: Archive, tree: Tree | Folders, folder: str, left: list[int]) -> str:
    rows: list[str] = []
    folders = list(islice(tree.each_folder(folder), ROWS + 1))
    files: Sequence[str | int] = tree.files(folder) if isinstance(tree, Tree) else list(islice(tree.files(folder), ROWS + 1))
    for name in folders[:ROWS]:
        count = f"{len(tree.files(name)) + len(tree.below(name)):,}" if isinstance(tree, Tree) else ""
        label = f"📁 {_shown(name.rpartition('/')[2])} <span style='opacity:.65'>{count}</span>"
        if left[0] > 0:
            left[0] -= 1
            rows.append(f"<details style='margin-left:1.2em'><summary style='margin-left:-1.2em'>{label}</summary>{_folder(archive, tree, name, left)}</details>")
        else:
            rows.append(f"<div>{label}</div>")
    for i in files[: ROWS - len(rows)]:
        info = archive.info(i)
        rows.append(f"<div style='display:flex;gap:1em'><span style='flex:1;overflow-wrap:anywhere'>{_shown(info.name.rpartition('/')[2] or info.name)}</span><span>{_size(info.size)}</span></div>")
    if len(folders) > ROWS or not isinstance(tree, Tree) and len(files) > len(rows) - len(folders):
        rows.append("<div style='opacity:.65'>and more</div>")
    elif (more := len(folders) + len(files) - len(rows)) > 0:
        rows.append(f"<div style='opacity:.65'>and {more:,} more</div>")
    return f"<div>{''.join(rows)}</div>"


def _map(archive: Archive) -> str:
    """Return the files in stored order as cells, each of the kind that most of its bytes have."""
    order = archive.stored()
    step = max(1, len(order) // LOOKED_AT)
    looked_at = [archive.info(order[i]) for i in range(0, len(order), step)]
    total = sum(f.size for f in looked_at)
    if not total:
        return ""
    cells: list[dict[str, float]] = [{} for _ in range(CELLS)]
    kinds: dict[str, int] = {}
    at = 0
    for f in looked_at:
        kind = _kind(f.name)
        kinds[kind] = kinds.get(kind, 0) + f.size
        begin, end = at * CELLS / total, (at + f.size) * CELLS / total
        for c in range(int(begin), min(CELLS, int(end) + 1)):
            cells[c][kind] = cells[c].get(kind, 0) + min(end, c + 1) - max(begin, c)
        at += f.size
    boxes: list[tuple[int, int, str]] = []
    for c, cell in enumerate(cells):
        kind = max(cell, key=cell.__getitem__, default="")
        if boxes and boxes[-1][2] == kind:
            boxes[-1] = (boxes[-1][0], boxes[-1][1] + 1, kind)
        else:
            boxes.append((c, 1, kind))
    bars = "".join(f'<rect x="{x}" y="0" width="{w}" height="10" fill="{KINDS[k][1]}"/>' for x, w, k in boxes)
    about = "about " if step > 1 else ""
    legend = " ".join(
        f"<span style='margin-right:1em'><span style='color:{KINDS[k][1]}'>■</span> {KINDS[k][0]} {about}{n / total:.0%}</span>"
        for k, n in sorted(kinds.items(), key=lambda kn: -kn[1])
        if n
    )
    return (
        f'<svg viewBox="0 0 {CELLS} 10" preserveAspectRatio="none" role="img" aria-label="Where what kinds of files lie" style="width:100%;height:22px;margin:6px 0 2px">{bars}</svg>'
        f"<div style='font-size:12px;margin-bottom:6px'>{legend}</div>"
    )


def _kind(name: str) -> str:
    base = name.rpartition("/")[2]
    if base.replace(".", "").isdigit():  # a chunk, with a name as in Zarr
        return "array"
    kind = (mimetypes.guess_type(base, strict=False)[0] or "").partition("/")[0]
    return kind if kind in KINDS else ""


def _size(n: int) -> str:
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def _shown(name: str) -> str:
    """Return a name without characters that change the direction of text or break the line."""
    return escape("".join(c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else f"\\u{ord(c):04x}" for c in name))

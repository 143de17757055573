"""The rows of an index, against the test vectors that other readers have, too."""

import json
import pathlib
import random

import pytest

import holdall
from holdall.listing import INLINE, RAW
from holdall.objects import LocalFile
from holdall.table import Table, read_head

VECTORS = pathlib.Path(__file__).parent.parent.parent / "internal/read/kept/testdata/rows"


def open_table(name):
    obj = LocalFile(str(VECTORS / f"{name}.holdall"))
    return Table(obj, read_head(obj), "archive")


@pytest.mark.parametrize("name", sorted(p.stem for p in VECTORS.glob("*.json")))
def test_vectors(name):
    wanted = json.loads((VECTORS / f"{name}.json").read_text()) or []
    table = open_table(name)
    rows = {table.name(r): r for r in range(table.rows)}
    files = []
    for want in wanted:
        key = bytes.fromhex(want["name_hex"]) if "name_hex" in want else want.get("name", "").encode()
        row = rows.pop(key)
        block, i = table._block(row)
        how = block.hows[i]
        assert (table.kind(row), how.fault, how.ask) == (want["kind"], *(want.get(k, False) for k in ("fault", "ask")))
        proof = table.proof(row)
        if table.chunk:
            assert [s.hex() for s in proof.sums] == want["pieces"] if proof else "pieces" not in want
        else:
            assert (f"{proof.algo}:{proof.sum.hex()}" if proof else None) == want.get("digest")
        assert table.size(row) == want["size"]
        is_file = want["kind"] in ("file", "property")
        assert table.find(key) == (row if is_file else -1)
        if how.fault or how.ask:
            with pytest.raises(holdall.HoldallError):
                table.extents(row)
        else:
            assert [said(table, e) for e in table.extents(row)] == [asked(e) for e in want.get("extents", [])]
        if is_file:
            files.append(row)
    assert len(files) == table.files
    assert all(n.endswith(b"/") and table.kind(r) == "dir" for n, r in rows.items())  # names imply them
    assert [table.row(i) for i in range(table.files)] == sorted(files)
    assert [table.number(r) for r in sorted(files)] == list(range(table.files))
    assert list(table.names()) == [table.name(r) for r in sorted(files)]
    assert sorted(table.stored()) == list(range(table.files))
    rnd = random.Random(1)
    for row in files:
        other = table.name(row) + bytes([rnd.randrange(1, 256)])
        assert table.find(other) == -1 or other in set(table.names())


def said(table, e):
    if e.volume == INLINE:
        return (e.at, e.length, "", "", 0, "", e.data)
    return (e.at, e.length, table.volumes[e.volume], e.offset, e.skip, "" if e.codec == RAW else table.codecs[e.codec], b"") + (e.stored,)


def asked(e):
    if "data_hex" in e:
        return (e["at"], e["length"], "", "", 0, "", bytes.fromhex(e["data_hex"]))
    volume = (e.get("volume", ""), e.get("external", False))
    return (e["at"], e["length"], volume, e.get("offset", 0), e.get("skip", 0), e.get("codec", ""), b"") + (e["stored"],)


def test_wrong_indexes_are_refused(tmp_path):
    """By the list that other readers have, too."""
    wrong = json.loads((VECTORS.parent / "wrong.json").read_text())
    assert len(wrong) > 20
    used = []
    for w in wrong:
        data = bytearray((VECTORS / f"{w['of']}.holdall").read_bytes()[: w["cut"]])
        there = bytes.fromhex(w["hex"])
        data[w["at"] : w["at"] + len(there)] = there
        path = tmp_path / "x.holdall"
        path.write_bytes(data + bytes.fromhex(w["then_hex"]))
        try:
            obj = LocalFile(str(path))
            table = Table(obj, read_head(obj), "archive")
            list(table.names())
        except holdall.DamagedError:
            continue
        used.append(w["what"])
    assert not used

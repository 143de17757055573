"""CAF and LINDI by their own index, with the archives of others; and all decoders."""

import base64
import bz2
import gzip
import hashlib
import io
import json
import lzma
import pathlib
import random
import subprocess
import zlib

import pytest

import holdall
from holdall import codecs, jsontext, reading

ROOT = pathlib.Path(__file__).parent.parent.parent
CAF = ROOT / "format/caf/testdata/fixtures"
LINDI = ROOT / "format/lindi/testdata"


@pytest.mark.parametrize("path", sorted(CAF.glob("*.caf")), ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::holdall.StaleIndexWarning")
def test_caf_of_others(path):
    said = json.loads(path.with_suffix(".expect.json").read_text(), strict=False)
    if said["open"] == "error":
        with pytest.raises(holdall.HoldallError):
            holdall.open(path)
        return
    a = holdall.open(path)
    members = {}
    for m in said.get("members", []):
        if not m.get("shadowed"):
            name = bytes.fromhex(m["name_hex"]) if "name_hex" in m else m["name"].encode("utf-8", "surrogatepass")
            members[name.decode("utf-8", "surrogateescape")] = m
    assert "members" not in said or set(a) == set(members)
    assert len(a) == len(set(a)) > 0 or not members
    for name, m in members.items():
        if m.get("read") or "sha256" not in m or m["sha256"] is None:
            for read in (lambda: a[name], lambda: a.read(name), lambda: a.read(name, 0, 0), lambda: a.read_many([name])):
                with pytest.raises(holdall.DamagedError) as err:
                    read()
                assert err.value.name == name
        else:
            assert hashlib.sha256(a[name]).hexdigest() == m["sha256"]
            assert a.size(name) == m["size"]


LINDI_ARCHIVES = sorted(p for p in LINDI.glob("*.lindi.*") if not p.name.endswith(".expect.json"))


@pytest.mark.parametrize("path", LINDI_ARCHIVES, ids=lambda p: p.name)
def test_lindi_of_others(path):
    said = json.loads((path.parent / (path.name + ".expect.json")).read_text(), strict=False)
    if not said["reference_opens"]:
        with pytest.raises(holdall.HoldallError):
            holdall.open(path, view="zarr")
        return
    keys = holdall.open(path, view="zarr")
    assert set(keys) == set(said["rfs"])
    read = 0
    for name, entry in said["rfs"].items():
        try:
            data = keys[name]
        except holdall.UnsupportedError:  # it leads outside
            assert entry["kind"] == "ref" and not str(entry["ref"][0]).startswith("./")
            continue
        except holdall.DamagedError:
            assert name.startswith("x") or said.get("damage") or "13_" in path.name, name
            continue
        if entry["kind"] == "json":
            assert json.loads(data) == entry["json"]
        elif "sha256" in entry:  # the reference fills up what is compressed, too
            assert hashlib.sha256(data).hexdigest() in (entry["sha256"], entry.get("stored_sha256")), name
        else:
            assert entry["kind"] == "text" and data == entry.get("text", data.decode()).encode()
        read += 1
    assert read
    for m in said.get("members") or []:
        if "sha256" in m and not said.get("damage"):
            members = holdall.open(path)
            assert hashlib.sha256(members[m["n"]]).hexdigest() == m["sha256"]


def lindi_json(tmp_path, refs, **top):
    path = tmp_path / "a" / "x.lindi.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"refs": refs, **top}))
    return path


def test_keys_of_a_json(tmp_path):
    zarray = {"dtype": "<i2", "chunks": [4, 3], "compressor": None, "filters": None}
    refs = {
        ".zgroup": {"zarr_format": 2, "é": [1.0, None]},
        "text": "hällo",
        "binary": "base64:" + base64.b64encode(b"\xff\0").decode(),
        "bad": "base64:!",
        "number": 5,
        "short": ["./x", 1],
        "x/.zarray": zarray,
        "x/0.0": "abc",
        "x/0.1": ["b.bin", 2, 5],
        "y/.zarray": json.dumps({**zarray, "compressor": {"id": "zlib"}}),
        "y/0.0": "abc",
        "z/0": "abc",
        "template": ["{{u}}.bin", 0, 10],
        "gone": ["gone.bin", 0, 10],
        "none": ["", 0, 10],
        "out": ["../c.bin", 0, 1],
        "far": ["http://127.0.0.1:1/x", 0, 1],
    }
    path = lindi_json(tmp_path, refs, templates={"u": "b"})
    (path.parent / "b.bin").write_bytes(b"0123456789")
    (tmp_path / "c.bin").write_bytes(b"c")
    assert dict(holdall.open(path)) == {"lindi.json": path.read_bytes()}
    a = holdall.open(path, view="zarr")
    assert len(a) == len(refs)
    assert a[".zgroup"] == b'{"zarr_format": 2, "\\u00e9": [1.0, null]}'
    assert a["text"] == "hällo".encode() and a["binary"] == b"\xff\0"
    assert a["x/0.0"] == b"abc" + bytes(21)
    assert a["x/0.1"] == b"23456" + bytes(19)
    assert a.read("x/0.1", 3, 8) == b"56" + bytes(3)
    assert a["y/0.0"] == b"abc" and a["z/0"] == b"abc"
    assert a["template"] == b"0123456789"
    assert a.read_many(["x/0.1", "text", "template"]) == [a["x/0.1"], a["text"], a["template"]]
    for name in ("bad", "number", "short", "none"):
        with pytest.raises(holdall.DamagedError):
            a[name]
    with pytest.raises(holdall.NotFoundError):
        a["gone"]
    for name in ("out", "far"):
        with pytest.raises(holdall.UnsupportedError, match="leads to"):
            a[name]
    free = holdall.open(path, view="zarr", external=True)
    assert free["out"] == b"c"
    with pytest.raises(holdall.HoldallError, match="no answer"):
        from holdall import web

        web.TRIES, tries = 1, web.TRIES
        try:
            free["far"]
        finally:
            web.TRIES = tries
    with pytest.raises(holdall.UnsupportedError, match="external is False"):
        holdall.open(path, view="zarr", external=False)["x/0.1"]


def test_an_index_of_hundreds_of_volumes(tmp_path, holdall_command):
    refs = {f"d{i % 3}/{i:03d}": [f"{i}.bin", 1, 2] for i in range(300)}
    path = lindi_json(tmp_path, refs)
    for i in range(300):
        (path.parent / f"{i}.bin").write_bytes(b"%06d" % i)
    subprocess.run([holdall_command, "index", "-q", "--view", "zarr", str(path)], check=True)
    a = holdall.open(path, view="zarr")
    assert a.index is not None
    want = {name: (b"%06d" % int(name[3:]))[1:3] for name in refs}
    assert dict(a) == want and a.read_many(list(a)) == [want[n] for n in a]
    assert [int(a.name(i)[3:]) for i in a.stored()] == sorted(range(300), key=lambda i: a._rows.runs([a._rows.find(b"d%d/%03d" % (i % 3, i))])[0][0])


def test_a_folder(tmp_path):
    folder = tmp_path / "x.lindi.d"
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "b").write_bytes(b"content")
    (folder / "lindi.json").write_text(json.dumps({"refs": {"k": ["./blobs/b", 2, 3], "up": ["./../b", 0, 1]}}))
    a = holdall.open(folder)
    assert a["blobs/b"] == b"content" and set(a) == {"lindi.json", "blobs/b"}
    keys = holdall.open(folder, view="zarr")
    assert keys["k"] == b"nte"
    with pytest.raises(holdall.DamagedError, match="no path"):
        keys["up"]


@pytest.mark.parametrize(
    "text, value",
    [
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\\ud83d"', r"\ud83d"),
        (b'"\xff"', "\udcff"),
        (b"[" + b"9" * 5000 + b", -" + b"9" * 5000 + b"]", [1 << 64, -(1 << 64)]),
        (b'{"files": {"a": 1}, "x": 2, "files": {"b": 3, "a": 4}}', {"files": {"a": 4, "b": 3}, "x": 2}),
    ],
)
def test_json(text, value):
    assert jsontext.decode(text, merge="files") == value


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"[Infinity]", b'"\x01"', b"01", b"[1,]", b"\xef\xbb\xbf{}", b"[" * 100_000])
def test_no_json(text):
    with pytest.raises(ValueError):
        jsontext.decode(text)


def test_commas_that_are_too_many():
    assert jsontext.without_trailing_commas(b'{"a,}": [1, 2 ,\n] , }') == b'{"a,}": [1, 2 \n]  }'


def test_levels():
    assert not jsontext.too_deep([[[]]], 2)
    assert jsontext.too_deep([[[1]]], 2)
    assert jsontext.too_deep({"a": {"b": {"c": 1}}}, 2)


# Decoders

CONTENT = b"".join(b"%d " % (i * i) for i in range(40_000))


def deflate(data, wbits):
    c = zlib.compressobj(9, zlib.DEFLATED, wbits)
    return c.compress(data) + c.flush()


def zstd(data, **how):
    return pytest.importorskip("zstandard").ZstdCompressor(**how).compress(data)


def zstd_blocks(data):
    """A frame without its header and its last block."""
    import zstandard

    c = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False).compressobj()
    frame = c.compress(data) + c.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    at = 6  # magic, descriptor, window
    return frame[at:]


def snappy(data):
    return bytes(pytest.importorskip("cramjam").snappy.compress_raw(data))


def segment(data):
    header = f"00000000-0000-4000-a000-000000000000.{zlib.crc32(data):08x}".encode()
    return header.ljust(512, b"\0") + data


MADE = {
    "gzip": lambda d: gzip.compress(d[:1000]) + gzip.compress(d[1000:]),
    "deflate": lambda d: deflate(d, -15),
    "zlib-record": lambda d: deflate(d, 15) + b"\0 anything",
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "xz-plain": lambda d: lzma.compress(d, check=lzma.CHECK_NONE),
    "lzma": lambda d: lzma.compress(d, format=lzma.FORMAT_ALONE),
    "zstd": lambda d: zstd(d[:5]) + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd(d[5:], write_checksum=True),
    "zstd-record": lambda d: zstd(d, write_checksum=True) + bytes(100),
    "zstd-blocks": zstd_blocks,
    "snappy-record": lambda d: snappy(d) + bytes(50),
    "oak-segment": lambda d: segment(d[: 256 << 10]),
    "lz4": lambda d: pytest.importorskip("lz4.frame").compress(d),
}


@pytest.mark.parametrize("codec", MADE)
def test_decoders(codec):
    stored = MADE[codec](CONTENT)
    content = CONTENT[: 256 << 10] if codec == "oak-segment" else CONTENT
    assert codecs.whole(codec, stored, len(content)) == content
    assert codecs.whole(codec, stored, len(content) + 1) == content or codec == "zstd-blocks"
    assert codecs.whole(codec, stored, 100) == content[:100]
    rnd = random.Random(1)
    file = codecs.stream(codec, io.BytesIO(stored))
    parts = []
    while len(part := codecs.fill(file, rnd.randrange(1, 70_000))):
        parts.append(part)
    assert b"".join(parts) == content
    for n in [0, 1, 5, len(stored) // 2]:
        try:
            assert len(codecs.whole(codec, stored[:n], len(content))) < len(content)
        except Exception as err:
            assert not isinstance(err, codecs.MissingDecoder)


def test_unknown_codecs_are_said():
    with pytest.raises(codecs.MissingDecoder, match="'nonsense'"):
        codecs.whole("nonsense", b"", 1)


def test_frames_by_a_decoder_as_python_has_it():
    """The decoders of Python 3.14 and pyzstd work as that of bz2 does."""
    stored = bz2.compress(CONTENT[:10]) + bz2.compress(CONTENT[10:])
    file = codecs.Parts(codecs.frames(io.BytesIO(stored), bz2.BZ2Decompressor))
    assert codecs.fill(file, 7) == CONTENT[:7]
    assert codecs.fill(file, 1 << 30) == CONTENT[7:]
    with pytest.raises(EOFError):
        codecs.Parts(codecs.frames(io.BytesIO(stored[:-9]), bz2.BZ2Decompressor)).read(1 << 30)


def test_bombs_do_not_explode():
    bomb = deflate(bytes(64 << 20), 15)
    assert codecs.whole("zlib-record", bomb, 1000) == bytes(1000)
    bomb = zstd(bytes(64 << 20))
    assert codecs.whole("zstd", bomb, 1000) == bytes(1000)
    with pytest.raises(ValueError, match="limit"):
        codecs.whole("snappy-record", b"\xff\xff\xff\xff\x0f" + bytes(100), 1000)


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tar.zst", "x.zip", "x.bundle"])
@pytest.mark.parametrize("stored, kept", [(0, 0), (1 << 30, 1000), (1 << 30, 64 << 20)])
def test_units_of_any_length(pack, holdall_command, monkeypatch, name, stored, kept):
    """Units that are too long for memory are read as streams; others are kept, some of them."""
    files = {f"{i:03d}": random.Random(i).randbytes(300) * 30 for i in range(60)}
    path = pack(files, name)
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    monkeypatch.setattr(reading, "MAX_STORED", stored)
    monkeypatch.setattr(reading, "MAX_KEPT", kept)
    monkeypatch.setattr(reading, "MAX_MADE", 1 << 20)
    a = holdall.open(path)
    order = random.Random(1).sample(list(files), len(files))
    assert [a[n] for n in order] == [files[n] for n in order]
    assert a.read_many(order) == [files[n] for n in order]
    assert [a.read(n, 100, 900) for n in order] == [files[n][100:900] for n in order]
    assert sum(map(len, a._reader._units.values())) <= max(kept, 1 << 20)

"""Contents are compared with digests."""

import builtins
import importlib.util
import json
import os
import pathlib
import subprocess
import warnings

import pytest

import holdall
from holdall import codecs, digests, reading
from holdall.listing import Proof

BIG = bytes(range(256)) * 8192  # 2 MiB
FILES = {"a": b"right" * 100, "b": b"other" * 100, "big": BIG}


def test_compares_the_same_ranges_as_the_command():
    file = pathlib.Path(__file__).parent.parent.parent / "internal/read/content/testdata/proof.json"
    cases = json.loads(file.read_text())
    assert len(cases) > 10
    for c in cases:
        proof = Proof(c["digest"], b"", c["chunk"]) if c["digest"] or c["chunk"] else None
        got = proof.compared(c["size"], c["start"], c["end"]) if proof else None
        assert got == (tuple(c["compared"]) if c["compared"] else None), c


@pytest.mark.parametrize("how", [{}, {"index": False}])
@pytest.mark.parametrize("name", ["x.caf", "x.lindi.tar"])
def test_damage_is_found(pack, holdall_command, name, how):
    pad = {"0": bytes(5000), "~": bytes(5000)}
    path = pack({**pad, **FILES}, name)
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"right", b"wrong", 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    a = holdall.open(path, **how)
    assert a.verifies and a.unverified == ""
    assert a.index is not None or how
    assert a["b"] == FILES["b"] and a["big"] == BIG
    for read in (lambda: a["a"], lambda: a.read("a", 0, 2), lambda: a.read_many(["b", "a"]), lambda: a.open("a").read(1)):
        with pytest.raises(holdall.DamagedError) as err:
            read()
        assert err.value.name == "a" and "blake3" in err.value.reason
    a = holdall.open(path, verify=False, **how)
    assert not a.verifies and a["a"].startswith(b"wrong")
    assert not a.info("a").proven
    assert holdall.open(path, verify=True, **how)["b"] == FILES["b"]
    assert holdall.open(path, verify=True, **how).info("a").proven


def test_parts_of_long_files_are_compared_by_pieces(pack, holdall_command):
    path = pack({"0": bytes(5000), **FILES, "~": bytes(5000), "empty": b""}, "x.tar")
    subprocess.run([holdall_command, "index", "-q", "--chunk-digests", str(path)], check=True)
    stat = path.stat()
    data = bytearray(path.read_bytes())
    at = data.index(BIG) + 700_000
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    a = holdall.open(path, verify=True)
    assert a.verifies
    assert a["a"] == FILES["a"] and a["empty"] == b""
    assert a.read("big", 0, 500_000) == BIG[:500_000]
    assert a.read("big", 1_000_000) == BIG[1_000_000:]
    for read in (lambda: a["big"], lambda: a.read("big", 699_990, 700_010), lambda: a.read("big", 600_000, 600_001), lambda: a.read_many(["a", "big"])):
        with pytest.raises(holdall.DamagedError, match="piece at 524288"):
            read()


def test_what_was_damaged_before_has_no_proof(pack, holdall_command):
    path = pack({"0": bytes(5000), **FILES, "~": bytes(5000)}, "x.caf")
    path.write_bytes(path.read_bytes().replace(b"right", b"wrong", 1))
    subprocess.run([holdall_command, "index", "-q", "--chunk-digests", str(path)], stderr=subprocess.DEVNULL)
    a = holdall.open(path, index=str(path) + ".holdall")
    with pytest.raises(holdall.DamagedError):
        a["a"]
    assert a["b"] == FILES["b"] and a["big"] == BIG


@pytest.mark.parametrize("name", ["x.tar", "y.caf"])
def test_archives_without_digests(pack, holdall_command, name):
    path = pack(FILES, name, *["--plain"] * name.endswith("caf"))
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    a = holdall.open(path)
    assert not a.verifies and a.unverified == "the archive has no digests"
    with pytest.raises(holdall.UnsupportedError, match="no digests"):
        holdall.open(path, verify=True)


def test_checksums():
    if importlib.util.find_spec("google_crc32c"):
        assert digests.find("crc32c")(b"123456789").hex() == "e3069283"
    assert digests.find("crc32")(b"123456789").hex() == "cbf43926"


def test_digests_of_bundles(pack, holdall_command):
    pytest.importorskip("google_crc32c")
    path = pack(FILES, "x.bundle")
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    a = holdall.open(path, verify=True)
    assert {n: a[n] for n in FILES} == FILES


def hide(monkeypatch, *packages):
    real = builtins.__import__

    def importer(name, *args, **more):
        if name.split(".")[0] in packages:
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", importer)
    monkeypatch.setattr(codecs, "_zstd_decoder", codecs._zstd_decoder.__wrapped__)


@pytest.mark.parametrize("how", [{}, {"index": False}])
def test_without_blake3_it_is_said(pack, holdall_command, monkeypatch, how):
    path = pack(FILES, "x.caf")
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    hide(monkeypatch, "blake3")
    monkeypatch.setattr(reading, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # a warning that is an error comes each time
            with pytest.raises(RuntimeWarning, match="x.caf: contents are not compared with their digests: the package blake3 is not installed"):
                holdall.open(path, **how)
        holdall.open(path, verify=False, **how)
    with pytest.warns(RuntimeWarning) as said:
        a = holdall.open(path, **how)
        holdall.open(path, **how)
    assert len(said) == 1 and said[0].filename == __file__
    assert not a.verifies and a.unverified == "the package blake3 is not installed"
    assert a["a"] == FILES["a"]
    with pytest.raises(holdall.UnsupportedError, match="blake3"):
        holdall.open(path, verify=True, **how)


def test_an_index_needs_no_zstd(pack, holdall_command, monkeypatch):
    path = pack(FILES, "x.caf")
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    hide(monkeypatch, "zstandard", "pyzstd", "compression")
    assert holdall.open(path, verify=True)["a"] == FILES["a"]
    subprocess.run([holdall_command, "index", "-q", "--chunk-digests", str(path)], check=True)
    a = holdall.open(path)
    assert a.verifies and a["a"] == FILES["a"]


def test_without_a_decoder_it_is_said(pack, holdall_command, monkeypatch):
    path = pack(FILES, "x.tar.zst")
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    hide(monkeypatch, "zstandard", "pyzstd", "compression")
    a = holdall.open(path)
    for read in (lambda: a["a"], lambda: a.read_many(["a"])):
        with pytest.raises(holdall.UnsupportedError, match="zstd needs Python 3.14 or the package zstandard"):
            read()


def test_digests_of_zip_need_no_package(pack, holdall_command):
    import zipfile

    path = pack({"x": b""}, "for.caf").parent / "x.zip"
    with zipfile.ZipFile(path, "w") as z:
        for name, content in {"0": bytes(5000), **FILES, "~": bytes(5000)}.items():
            z.writestr(name, content)
    subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"right", b"wrong", 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    a = holdall.open(path, verify=True)
    assert a["b"] == FILES["b"]
    with pytest.raises(holdall.DamagedError, match="crc32"):
        a["a"]


@pytest.mark.parametrize("name", ["x.lindi.json", "x.lindi.d"])
def test_a_lindi_json_that_is_an_object_is_compared_with_its_own_digest(pack, holdall_command, tmp_path, name):
    source = pack({".zgroup": b'{"zarr_format": 2}', ".zattrs": b'{"session": "A"}'}, "x.lindi.tar")
    path = tmp_path / name
    subprocess.run([holdall_command, "convert", "-q", "--view", "zarr", str(source), str(path)], check=True)
    text = path / "lindi.json" if path.is_dir() else path
    assert b'"A' in holdall.open(path, view="zarr", index=False)[".zattrs"]
    text.write_bytes(text.read_bytes().replace(b"A", b"C", 1))
    with pytest.raises(holdall.DamagedError, match="BLAKE3"):
        len(holdall.open(path, view="zarr", index=False))
    assert b'"C' in holdall.open(path, view="zarr", index=False, verify=False)[".zattrs"]

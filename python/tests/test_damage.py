"""Damaged and forged indexes and archives: an error of this package, or the right answer."""

import json
import os
import random
import struct
import subprocess
import zlib

import pytest

import holdall
from holdall import codecs, reading, table

FILES = {
    "a/one": b"1" * 100,
    "a/two": b"2" * 200,
    "b": bytes(range(256)),
    "empty": b"",
    "long/" + "n" * 90 + "/" + "m" * 90 + "a": b"name",
    "long/" + "n" * 90 + "/" + "m" * 90 + "b": b"another",
    **{f"many/{i:04d}.bin": b"%d" % i for i in range(40)},
}


@pytest.fixture
def indexed(pack, holdall_command):
    """An archive with an index that has what it is told."""

    def make(name, *flags, files=FILES):
        path = pack(files, name)
        subprocess.run([holdall_command, "index", "-q", *flags, str(path)], check=True)
        return path, path.parent / (name + ".holdall")

    return make


def use(path, index, names=tuple(FILES), **how):
    """All that can be done with an archive: what came, of what is no error of ours."""
    got = {}
    try:
        a = holdall.open(path, index=index, **how)
    except holdall.HoldallError:
        return got
    for name in names:
        for read in (lambda n: a[n], lambda n: a.read(n, 1, 50), lambda n: a.read_many([n])[0], lambda n: a[a.info(n).number]):
            try:
                got.setdefault(name, []).append(read(name))
            except holdall.HoldallError:
                got.setdefault(name, []).append(None)
    for more in (lambda: list(a), lambda: a.stored(), lambda: a.read_many(range(len(a))), lambda: [a.info(i) for i in range(len(a))], lambda: "nothing" in a):
        try:
            more()
        except holdall.HoldallError:
            pass
    return got


def right(got):
    for name, results in got.items():
        content = FILES[name]
        for result, want in zip(results, [content, content[1:50], content, content], strict=True):
            assert result is None or result == want, name


class Forger:
    """Changes an index and makes all its checksums right again."""

    def __init__(self, index):
        self.index = index
        self.data = bytearray(index.read_bytes())
        self.head_at, n = struct.unpack("<QI", self.data[-32:-20])
        first, self.apart = self.data[self.head_at : self.head_at + n].split(b"\n")
        self.head = json.loads(first)
        self.end = self.head_at  # of pages and nodes

    def write(self, data, head):
        """Write these bytes with this root. Checksums of pages and nodes are made right, from the pages upwards."""
        data = bytearray(data[: self.head_at])
        for name in ("rows", "proofs"):
            tree = head.get(name)
            if type(tree) is dict and type(tree.get("top")) is dict and tree["depth"] == 1:
                top = tree["top"]
                try:
                    node = bytes(data[top["offset"] : top["offset"] + top["stored"]])
                    c = table.Cursor(node)
                    c.uvar()
                    at = c.uvar()
                    while c.at < len(node):
                        c.uvar(), c.text(), c.uvar()
                        n = c.uvar()
                        c.uvar()
                        crc = zlib.crc32(data[at : at + n])
                        data[top["offset"] + c.at : top["offset"] + c.at + 4] = crc.to_bytes(4, "little")
                        c.take(36 if self.head.get("sealed") else 4)
                        at += n
                    head = {**head, name: {**tree, "top": {**top, "crc32": zlib.crc32(data[top["offset"] : top["offset"] + top["stored"]])}}}
                except (IndexError, TypeError):
                    pass
        text = json.dumps(head).encode() + b"\n" + self.apart
        end = struct.pack("<QIII", self.head_at, len(text), len(text), zlib.crc32(text))
        self.index.write_bytes(data + text + end + zlib.crc32(end).to_bytes(4, "little") + b"holdall3")


def flipped(path, index, places, **how):
    """Flip a bit of a byte at each place; says how often that was noticed."""
    data = bytearray(index.read_bytes())
    rnd = random.Random(1)
    refused = 0
    for at in places(data):
        was = data[at]
        data[at] ^= 1 << rnd.randrange(8)
        index.write_bytes(data)
        got = use(path, str(index), list(FILES)[::5], **how)
        right(got)
        refused += not got or any(None in results for results in got.values())
        data[at] = was
    return refused


@pytest.mark.parametrize("name", ["x.caf", "x.tar.zst"])
def test_no_flipped_byte_of_rows_gives_a_wrong_answer(indexed, name):
    path, index = indexed(name)
    forger = Forger(index)
    assert flipped(path, index, lambda data: range(16, forger.head_at), verify=False) > 100


@pytest.mark.parametrize("name, flags", [("x.caf", []), ("x.rvn", ["--chunk-digests"])])
def test_no_flipped_byte_of_a_page_of_digests_gives_a_wrong_answer(indexed, name, flags):
    path, index = indexed(name, *flags)
    forger = Forger(index)
    places = range(16, forger.head_at)
    noticed = flipped(path, index, lambda data: random.Random(1).sample([i for i in places if data[i]], 60), verify=True)
    assert noticed > (20 if flags else 40)


@pytest.mark.parametrize("name", ["x.caf", "x.tar"])
def test_no_flipped_byte_of_a_root_is_believed(indexed, name):
    """What is not in a page: the root, and what leads to it."""
    path, index = indexed(name)
    data = bytearray(index.read_bytes())
    for at in range(Forger(index).head_at, len(data)):
        data[at] ^= 0x10
        index.write_bytes(data)
        assert not use(path, str(index), verify=False)
        data[at] ^= 0x10


def test_no_index_that_was_cut_is_believed(indexed):
    path, index = indexed("x.caf")
    data = index.read_bytes()
    for n in [*range(0, 100), *range(100, len(data), 777), len(data) - 1]:
        index.write_bytes(data[:n])
        with pytest.raises(holdall.HoldallError):
            holdall.open(path, index=str(index))
    index.write_bytes(data + b"x")
    with pytest.raises(holdall.HoldallError):
        holdall.open(path, index=str(index))


@pytest.mark.parametrize("name", ["x.caf", "x.tar.gz", "x.lindi.tar"])
def test_forged_tables_lead_nowhere(indexed, name, monkeypatch):
    monkeypatch.setattr(reading, "MAX_ZEROS", 1 << 20)
    path, index = indexed(name, *(["--view", "zarr"] * name.startswith("x.lindi")), files={".zgroup": b"{}", **FILES} if "lindi" in name else FILES)
    forger = Forger(index)
    forger.write(forger.data, forger.head)
    got = use(path, str(index), verify=False)
    right(got)
    assert set(got) == set(FILES) and all(None not in results for results in got.values())
    numbers = [0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 47) - 1, (1 << 63) - 1, (1 << 64) - 1]
    for seed in range(300):
        rnd = random.Random(seed)
        data = bytearray(forger.data)
        for _ in range(rnd.randrange(1, 5)):
            at = rnd.randrange(16, forger.end)
            n = rnd.choice([1, 2, 4, 8])
            at -= at % n
            data[at : at + n] = (rnd.choice(numbers) & (1 << 8 * n) - 1).to_bytes(n, "little")
        data = data[: len(forger.data)]
        forger.write(data, forger.head)
        use(path, str(index), verify=False)


def test_forged_heads_are_errors(indexed):
    path, index = indexed("x.caf")
    forger = Forger(index)
    wrong = [None, -1, 1 << 70, "x", [], {}, True, 1.5]
    for key in [*forger.head, "chunk", "param", "digests", "proofs"]:
        for value in wrong:
            forger.write(forger.data, {**forger.head, key: value})
            use(path, str(index))
        forger.write(forger.data, {k: v for k, v in forger.head.items() if k != key})
        use(path, str(index))
    rows = forger.head["rows"]
    for key in rows["top"]:
        for value in [*wrong, rows["top"][key] + 4096]:
            forger.write(forger.data, {**forger.head, "rows": {"depth": 7, "top": {**rows["top"], key: value}}})
            assert not any(content for results in use(path, str(index)).values() for content in results)
    forger.write(forger.data, {**forger.head, "digests": ["md5"]})
    assert holdall.open(path, index=str(index)).unverified == "digests of md5 are not supported"
    for volume in ["/../x", "x", "/", "//etc/passwd", "/a//b"]:
        forger.write(forger.data, {**forger.head, "volumes": [{"name": volume}]})
        with pytest.raises(holdall.DamagedError):
            holdall.open(path, index=str(index))
    for volume in ["/etc/passwd", "../../etc/passwd", "http://127.0.0.1:1/x", "file:///etc/passwd"]:
        forger.write(forger.data, {**forger.head, "volumes": [{"name": volume, "external": True}]})
        a = holdall.open(path, index=str(index), verify=False)
        with pytest.raises(holdall.UnsupportedError, match="leads to"):
            a["b"]
        with pytest.raises(holdall.UnsupportedError, match="external is False"):
            holdall.open(path, index=str(index), verify=False, external=False)["b"]


@pytest.mark.parametrize("name", ["x.caf", "x.lindi.tar"])
def test_damaged_archives_by_their_own_index(pack, name):
    path = pack(FILES, name)
    data = bytearray(path.read_bytes())
    rnd = random.Random(2)
    refused = 0
    for _ in range(300):
        at = rnd.randrange(len(data)) if rnd.randrange(2) else len(data) - 1 - rnd.randrange(min(len(data), 400))
        was = data[at]
        data[at] = rnd.randrange(256)
        path.write_bytes(data)
        use(path, False, verify=False)
        right(use(path, False))
        try:
            extra = {".tar_entry.json", ".tar_index.json", "lindi.json"} if "lindi" in name else set()
            assert set(holdall.open(path, index=False)) == set(FILES) | extra
        except holdall.HoldallError:
            refused += 1
        data[at] = was
    assert refused > 10
    for n in [*range(0, 60), *range(60, len(data), 501)]:
        path.write_bytes(data[:n])
        right(use(path, False))


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tar.zst", "x.bundle", "x.zip", "x.rvn"])
def test_damaged_units_are_errors(indexed, name):
    files = {f"f{i}": random.Random(i).randbytes(1000) * 3 for i in range(8)}
    path, index = indexed(name, files=files)
    shard = next(path.glob("shard-*")) if path.is_dir() else path
    stat = shard.stat()
    data = bytearray(shard.read_bytes())
    rnd = random.Random(3)
    seen = 0
    for at in rnd.sample([i for i, c in enumerate(data) if c], 60):
        shard.write_bytes(data[:at] + bytes([data[at] ^ 1 << rnd.randrange(8)]) + data[at + 1 :])
        os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        try:
            a = holdall.open(path, index=str(index))
        except holdall.HoldallError:
            seen += 1
            continue
        for f, content in files.items():
            try:
                assert a[f] == content or not a.verifies
            except holdall.HoldallError as err:
                assert err.archive
                seen += 1
    assert seen
    assert codecs._zstd_decoder()

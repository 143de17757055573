"""Catalogues in a folder: by the vectors of docs/bytes/catalog.md, and made by the command."""

import gzip
import importlib.util
import itertools
import json
import os
import pathlib
import pickle
import random
import re
import shutil
import struct
import subprocess
import urllib.parse
import zlib

import pytest

import holdall
from holdall import catalog, digests, opening, page, reading, runs
from holdall.listing import text
from test_tree import slow
from test_verify import hide

ROOT = pathlib.Path(__file__).parent.parent.parent
VECTORS = ROOT / "internal/app/catalog/book/testdata/vectors"
FILES = {f"d{i % 3}/{i:03d}.bin": bytes([i]) * (10 * i + 1) for i in range(60)} | {"top": b"t" * 5000, "empty": b"", "d0-x/ß [1]": b"unicode"}


@pytest.fixture
def command(holdall_command):
    def run(*args):
        return subprocess.run([holdall_command, *map(str, args)], check=True, capture_output=True, env={**os.environ, "HOLDALL_CACHE": "none"}).stdout

    run.path = holdall_command
    return run


@pytest.fixture
def made(pack, command, tmp_path):
    """A catalogue of a CAF, a tar, and a zip with an index, and what it has."""
    first, second, third = list(FILES)[:20], list(FILES)[20:40], list(FILES)[40:]
    for name, part in (("a b.caf", first), ("b.tar", second), ("c.zip", third)):
        pack({n: FILES[n] for n in part} | {"in all": name.encode()}, name, index=name == "c.zip")
    at = tmp_path / "photos.catalog"
    command("catalog", "init", "--catalog", at)
    command("catalog", "add", "--catalog", at, *(tmp_path / n for n in ("a b.caf", "b.tar", "c.zip")))
    return at, FILES | {"in all": b"c.zip"}


def vector(name):
    """The files of a vector, by their names."""
    files = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return {bytes.fromhex(f["name_hex"]) if "name_hex" in f else f.get("name", "").encode(): f for f in files}


def unescaped(s):
    return text(re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), s.encode()))


def stored(address):
    """An address of a vector, as the catalogue has it."""
    folder, address = "s3://bucket/packed/", unescaped(address)
    return "./" + urllib.parse.unquote(address.removeprefix(folder)) if address.startswith(folder) else address


def test_an_old_head_after_an_erasure(command, tmp_path):
    """Commits that say nothing any more are not followed."""
    at, to = tmp_path / "x.catalog", tmp_path / "in"
    to.mkdir()
    for i in range(9):
        (to / f"{i}").write_bytes(bytes([i]) * 100)
    fleet = ["--catalog", at, "--queue", tmp_path / "jobs.db"]
    command("catalog", "init", "--catalog", at)
    command("fleet", "plan", to, "-o", tmp_path / "x.caf", *fleet)
    old = (at / "head").read_bytes()
    command("fleet", "work", *fleet)
    (to / "5").unlink()
    command("fleet", "forget-object", "5", *fleet)
    (at / "head").write_bytes(old)
    with holdall.open(at) as files:
        assert dict(files) == {f"{i}": bytes([i]) * 100 for i in range(9) if i != 5}
    for path in (at / "states").iterdir():
        path.unlink()
    with pytest.raises(holdall.DamagedError, match="erased"):
        holdall.open(at)


@pytest.mark.parametrize("name", ["small", "many", "fleet"])
@pytest.mark.parametrize("without", ["", "head", "states"])
def test_the_vectors(tmp_path, name, without):
    at = tmp_path / "x.catalog"
    shutil.copytree(VECTORS / f"{name}.catalog", at)
    if without:
        (at / "head").unlink()
    if without == "states":
        shutil.rmtree(at / "states", ignore_errors=True)
    a = holdall.open(at)
    found = opening.find(at).rows
    every = vector(name)
    expected = {n: f for n, f in every.items() if f["kind"] in ("file", "property")}
    assert [text(n) for n in expected] == list(a) and len(a) == len(expected) == len(every) - (name == "small")
    assert a.bytes == sum(f["size"] for f in expected.values())
    for n, f in expected.items():
        r = found.at(found.find(n))
        algo, _, digest = f.get("digest", "").partition(":")
        assert r[:3] + r[5:] == (n, r.seq, f["archive"], f["kind"], f.get("offset", -1), f["size"], algo, bytes.fromhex(digest))
        assert found.archive(r.archive) == (stored(f["address"]), f["format"], f["archive_size"], unescaped(f.get("version", "")))
        assert a.info(text(n)) == (text(n), f["kind"], f["size"], -1, f["size"] == 0 or algo in ("blake3", "crc32"))
        for other in (n + b"\0", n + b"x", n[:-1] + b"\xff", n[1:]):
            assert (text(other) in a) == (other in expected)
    assert "dir/link" not in a and "2026/05/007.jpg" not in a and a.get("nothing") is None
    folders = a.folders()
    for folder, (files, below_it, below) in slow(list(a)).items():
        assert set(folders.files(folder)) == {f for f in files if holdall.listing.is_path(f.encode("utf-8", "surrogateescape"))}
        assert folders.folders(folder) == sorted(below_it) and set(folders.below(folder)) == below
        assert folders.is_folder(folder)
    assert not folders.is_folder("nowhere") and not folders.is_folder("2026/0")


def check(a, files):
    assert dict(a) == files and len(a) == len(files) and a.bytes == sum(map(len, files.values()))
    assert a.read_many([*files, "top"]) == [*files.values(), files["top"]]
    for name, content in files.items():
        assert a.size(name) == len(content) and name in a and a.info(name).proven == (name not in list(FILES)[20:40])
        assert a.read(name, 3, -2) == content[3:-2] and a.read(name, 7, 7) == b""
        with a.open(name) as f:
            f.seek(len(content) // 2)
            assert f.read() == content[len(content) // 2 :]
    assert sorted(a.glob("d1/*")) == sorted(n for n in files if n.startswith("d1/"))


@pytest.mark.parametrize("how", ["path", "relative", "http", "slash", "fsspec"])
def test_contents(made, serve, monkeypatch, how):
    at, files = made
    match how:
        case "path":
            what = at
        case "relative":
            monkeypatch.chdir(at.parent)
            what = at.name
        case "http":
            what = f"{serve(at.parent)}/{at.name}"
        case "slash":
            what = f"{serve(at.parent)}/{at.name}/"
        case "fsspec":
            fsspec = pytest.importorskip("fsspec")
            fs = fsspec.filesystem("dir", path=str(at.parent), fs=fsspec.filesystem("file"))
            what = fsspec.core.OpenFile(fs, at.name)
    a = holdall.open(what)
    assert a.format == "catalog" and a.verifies and at.name in a.address and a.index is None
    check(a, files)
    assert dict(pickle.loads(pickle.dumps(a))) == files
    assert dict(holdall.open(what, verify=False)) == files
    a.close()
    with pytest.raises(holdall.HoldallError, match="closed"):
        a["top"]


def test_the_command_shows_the_same(made, command):
    at, files = made
    found = [json.loads(line) for line in command("find", "--json", at, "**").splitlines()]
    assert {f["path"]: f["size"] for f in found if f["kind"] == "file"} == {n: len(c) for n, c in files.items()}


def test_few_requests(command, serve, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    files = {f"{i % 20:02d}/{i % 400:03d}/{i:05d}": b"%05d" % i for i in range(20_000)}
    caf(tmp_path / "x.caf", files)
    at = tmp_path / "x.catalog"
    command("catalog", "init", "--catalog", at)
    command("catalog", "add", "--catalog", at, tmp_path / "x.caf")
    address = f"{serve(tmp_path)}/{at.name}"

    # A first read takes four: the rows of a large run are looked at without its filter.
    assert holdall.open(address)["07/007/00407"] == b"00407"
    assert [p for p, _ in serve.asked[:2]] == ["/x.catalog/head", "/x.catalog/commits/0000000000000003"]
    assert serve.asked[2][0].startswith("/x.catalog/runs/") and serve.asked[3][0] == "/x.caf" and len(serve.asked) == 4

    # A listing takes the pages of what it shows.
    fs = fsspec.filesystem("holdall", fo=address)
    serve.asked.clear()
    assert fs.ls("07/007", detail=False) == sorted(n for n in files if n.startswith("07/007/"))
    assert fs.info("07/007/00007") == {"name": "07/007/00007", "size": 5, "type": "file"} and fs.isdir("07") and not fs.exists("07/00")
    assert len(serve.asked) <= 2
    serve.asked.clear()
    assert fs.ls("", detail=False) == [f"{i:02d}" for i in range(20)]
    assert fs.ls("19", detail=False) == [f"19/{i:03d}" for i in range(19, 400, 20)]
    assert len(serve.asked) < 25
    fresh = fsspec.filesystem("holdall", fo=address)
    serve.asked.clear()
    assert fresh.find("") == sorted(files)
    assert len(serve.asked) < 10
    assert fs.cat(["07/007/00007", "07/007/00407"]) == {"07/007/00007": b"00007", "07/007/00407": b"00407"}
    html = page.html(fs.archive)
    assert "x.catalog" in html and "19" in html


def test_versions_and_deletions(made, command, pack):
    at, files = made
    before = holdall.open(at)
    command("catalog", "rm", "--catalog", at, "--files", "top", "in all")
    command("catalog", "rm", "--catalog", at, at.parent / "b.tar")
    path = pack({"top": b"again", "new": b"new"}, "d.caf")
    command("catalog", "add", "--catalog", at, path)
    left = {n: c for n, c in files.items() if n not in list(FILES)[20:40] and n != "in all"} | {"top": b"again", "new": b"new"}
    assert dict(holdall.open(at)) == left
    assert list(before) == sorted(files, key=str.encode)  # it shows what there was


def test_without_blake3(made, monkeypatch):
    at, files = made
    hide(monkeypatch, "blake3")
    monkeypatch.setattr(reading, "_warned", set())
    with pytest.warns(RuntimeWarning, match="blake3 is not installed") as said:
        a = holdall.open(at)
    assert [w.filename for w in said] == [__file__] and not a.verifies and dict(a) == files
    with pytest.raises(holdall.UnsupportedError, match="blake3"):
        holdall.open(at, verify=True)


@pytest.mark.parametrize("far", [False, True])
def test_an_archive_that_has_changed(made, serve, far):
    at, files = made
    a = holdall.open(f"{serve(at.parent)}/{at.name}" if far else at)
    for name, member in (("a b.caf", "d0/000.bin"), ("c.zip", "in all")):
        path, was = at.parent / name, (at.parent / name).stat()
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns + 5_000_000_000))
        for read in (lambda: a[member], lambda: a.read_many([member]), lambda: a.read(member, 0, 1)):
            with pytest.raises(holdall.StaleIndexError, match="has changed since it was added"):
                read()
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        assert a[member] == files[member]
    os.rename(at.parent / "a b.caf", at.parent / "gone")
    b = holdall.open(a.address)
    with pytest.raises(holdall.NotFoundError, match="caf"):
        b["d0/000.bin"]
    content = bytearray((at.parent / "gone").read_bytes())
    content[0] ^= 1
    (at.parent / "a b.caf").write_bytes(content)
    os.utime(at.parent / "a b.caf", ns=((at.parent / "gone").stat().st_mtime_ns,) * 2)
    with pytest.raises(holdall.DamagedError, match="blake3"):
        b["d0/000.bin"]


def test_archives_elsewhere(pack, command, serve, tmp_path):
    (tmp_path / "in").mkdir()
    at = tmp_path / "in/x.catalog"
    archive = pack({"a": b"alpha"}, "out.caf")
    command("catalog", "init", "--catalog", at)
    command("catalog", "add", "--catalog", at, archive)
    for external in (None, False):
        with pytest.raises(holdall.UnsupportedError, match="leads to"):
            holdall.open(at, external=external)["a"]
    assert holdall.open(at, external=True)["a"] == b"alpha"
    with pytest.raises(holdall.UnsupportedError, match="another machine"):
        holdall.open(f"{serve(tmp_path)}/in/x.catalog", external=True)["a"]


def test_names_of_archives_are_paths(pack, command, serve, tmp_path):
    """Their addresses have no escapes, and have some in requests."""
    fsspec = pytest.importorskip("fsspec")
    at = tmp_path / "x.catalog"
    command("catalog", "init", "--catalog", at)
    files = {}
    for i, name in enumerate(["a b%20.caf", "a#b?c=d&e.caf", "ü.caf", os.fsdecode(b"\xff.caf"), r"back\xff.caf", "x:y.caf", "sub/ä+%2F.caf"]):
        made = pack({f"{i}": b"%d" % i}, f"{i}.caf")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.rename(made, tmp_path / name)
        subprocess.run([os.fsencode(command.path), b"catalog", b"add", b"--catalog", os.fsencode(at), os.fsencode(tmp_path / name)], check=True)
        files[f"{i}"] = b"%d" % i
    assert dict(holdall.open(at)) == files
    assert dict(holdall.open(f"{serve(tmp_path)}/x.catalog")) == files
    folder = fsspec.filesystem("dir", path=str(tmp_path), fs=fsspec.filesystem("file"))
    assert dict(holdall.open(fsspec.core.OpenFile(folder, at.name))) == files
    if importlib.util.find_spec("aiohttp"):
        rows = opening.find(fsspec.open(f"{serve(tmp_path)}/x.catalog")).rows  # it tells no times of objects
        archives = [rows.shelf.archive(rows.archive(r.archive).address, None) for r in rows.after(b"")]
        assert [a.read(0, 1) for a in archives] == list(files.values())


def caf(path, files):
    ends = list(itertools.accumulate(map(len, files.values()), initial=0))
    rows = {n: {"start_byte": start, "end_byte": end} for n, start, end in zip(files, ends, ends[1:], strict=False)}
    index = json.dumps({"format_version": "1.0", "files": rows}).encode()
    path.write_bytes(b"".join(files.values()) + index + struct.pack("<I", len(index)))


def test_archives_that_were_moved(command, tmp_path):
    """What pages have of them is as it was before."""
    at, old = tmp_path / "x.catalog", tmp_path / "old"
    old.mkdir()
    files = {f"{i:03d}/{k:02d}{random.Random(k).randbytes(30).hex()}": b"%03d %02d" % (i, k) for i in range(110) for k in range(60)}
    for i in range(110):
        caf(old / f"{i:03d}.caf", {n: c for n, c in files.items() if n.startswith(f"{i:03d}")})
    command("catalog", "init", "--catalog", at)
    command("catalog", "add", "--catalog", at, *sorted(old.iterdir()))
    new, newer = tmp_path / "new", tmp_path / "newer"
    old.rename(new)
    command("catalog", "relocate", "--catalog", at, old, new)
    newer.mkdir()
    for path in new.glob("00?.caf"):
        path.rename(newer / path.name.removeprefix("00"))
    command("catalog", "relocate", "--catalog", at, f"{new}/00", f"{newer}/")
    a, found = holdall.open(at), opening.find(at).rows
    for name in list(files)[7 * 60], list(files)[99 * 60 + 59], list(files)[100 * 60]:
        assert a[name] == files[name]
        address = found.archive(found.at(found.find(name.encode())).archive).address
        assert address == ("./newer/7.caf" if name[:3] == "007" else f"./new/{name[:3]}.caf")
    assert found._state.elsewhere, "the list of all archives was read"
    assert dict(a) == files


@pytest.mark.parametrize("name", ["small", "many", "fleet"])
def test_a_bucket_that_must_not_be_listed(tmp_path, serve, name):
    """S3 answers 403 instead of 404 then."""
    shutil.copytree(VECTORS / f"{name}.catalog", tmp_path / "x.catalog")
    address = f"{serve(tmp_path)}/x.catalog"
    serve.missing = 403
    assert list(holdall.open(address)) == [text(n) for n, f in vector(name).items() if f["kind"] in ("file", "property")]
    for lost in ("states/0000000000000005", "commits/0000000000000007"):  # they are needed, and this is no end
        if (path := tmp_path / "x.catalog" / lost).exists() and name == "many":
            path.unlink()
            with pytest.raises(holdall.HoldallError, match="403"):
                opening.find(address).rows.archive(1)
    (tmp_path / "x.catalog/head").unlink()
    with pytest.raises(holdall.HoldallError, match="403"):
        holdall.open(address)


def test_what_lies_beside(made, command):
    """By it, a catalogue that is lost is made again."""
    at, _ = made
    for k, name in enumerate(("a b.caf", "b.tar", "c.zip")):
        record, more = parts(next(at.parent.glob(f"{name}.added-*")), b"holdall added 1\n")
        commit = (at / f"commits/{record['commit']:016}").read_bytes()
        assert record["hash"] == digests.find("blake3")(commit).hex() and not more and record.get("ordinal", 0) >= 0, k
        added = catalog._unframed(commit, catalog.COMMIT)[0]
        assert added["add"][record.get("ordinal", 0)]["address"] == f"./{name}" and added["catalog"] == record["catalog"]
    gone = VECTORS / "small.catalog.gone"
    deleted, more = parts(gone / "0000000000000005-TEXT1", b"holdall gone 1\n")
    names = []
    while more:
        n = more[0]  # short ones
        names, more = [*names, more[1 : 1 + n]], more[1 + n :]
    assert names == [b"2026/05/002.jpg", b"2026/05/007.jpg", b"2026/05/016.jpg"] and deleted["commit"] == 5 and "dropped" not in deleted
    dropped, more = parts(gone / "0000000000000008-TEXT1", b"holdall gone 1\n")
    assert dropped["dropped"] == ["https://example.org/b.tar"] and not more
    assert holdall.open(at).get("top") == FILES["top"]


def test_a_catalogue_of_recordings(command, tmp_path):
    """Recordings with facts are files, whatever the facts are."""
    content = gzip.decompress((ROOT / "internal/app/catalog/survey/testdata/recording.nwb.gz").read_bytes())
    for sub in "12":
        (tmp_path / f"data/sub-0{sub}").mkdir(parents=True)
        (tmp_path / f"data/sub-0{sub}/a.nwb").write_bytes(content)
    at = tmp_path / "x.catalog"
    command("catalog", "init", "--catalog", at)
    command("catalog", "add", "--facts", "nwb", "--catalog", at, tmp_path / "data")
    a = holdall.open(at)
    assert dict(a) == {"sub-01/a.nwb": content, "sub-02/a.nwb": content}
    assert a.read("sub-02/a.nwb", 1, 4) == b"HDF"


def test_what_a_catalogue_does_not_have(made, serve, tmp_path):
    for ask in (lambda: holdall.open(made[0], view="zarr"), lambda: holdall.open(made[0], index=made[0])):
        with pytest.raises(holdall.UnsupportedError):
            ask()
    (tmp_path / "none.catalog").mkdir()
    for what in (tmp_path / "none.catalog", f"{serve(tmp_path)}/none.catalog"):
        with pytest.raises(holdall.NotFoundError, match="no catalogue"):
            holdall.open(what)


# Damage, and what is made to do harm


def framed(magic, top, more=b""):
    packed = zlib.compress(json.dumps(top).encode())
    data = magic + struct.pack("<I", len(packed)) + packed + more
    return sealed(data)


def sealed(data):
    return data + struct.pack("<I", zlib.crc32(data))


def parts(path, magic):
    with runs.parsing(str(path)):
        return catalog._unframed(path.read_bytes(), magic)


@pytest.fixture(params=["small", "many"])
def copied(request, tmp_path):
    at = tmp_path / "x.catalog"
    shutil.copytree(VECTORS / f"{request.param}.catalog", at)
    return at, [text(n) for n, f in vector(request.param).items() if f["kind"] in ("file", "property")]


def everything(at):
    a = holdall.open(at)
    for name in a:
        a.info(name)
    for name in ("2026/05/001.jpg", "same/07", "nothing"):
        a.get(name) if name not in a else a.info(name)
        try:
            a.read(name, 0, 1)
        except holdall.HoldallError as err:
            if not isinstance(err, holdall.NotFoundError):
                raise
    return list(a)


def test_each_damaged_byte_is_noticed(copied):
    at, names = copied
    rnd = random.Random(1)
    noticed = 0
    for path in [at / "head", *(p for p in at.glob("*/*"))]:
        good = path.read_bytes()
        if path.name == "head":  # the commits have everything, too
            path.write_bytes(b"")
            assert list(holdall.open(at)) == names
            path.unlink()
            continue
        for _ in range(30):
            bad = bytearray(good)
            bad[rnd.randrange(len(bad))] ^= 1 << rnd.randrange(8)
            path.write_bytes(bad[: rnd.choice([len(bad), len(bad), rnd.randrange(len(bad))])])
            try:
                assert list(holdall.open(at)) == names  # it was not needed
            except holdall.DamagedError as err:
                noticed += 1
                assert str(at) in err.archive
        path.write_bytes(good)
    assert noticed > 80


def test_bytes_that_are_made_to_do_harm(copied):
    at, _ = copied
    rnd = random.Random(2)
    path, magic = (at / "head", catalog.STATE)
    top, more = parts(path, magic)
    run = (at / top["runs"][0]["object"]).read_bytes()[top["runs"][0].get("off", 0) :][: top["runs"][0]["size"]]
    tail = top["runs"][0]["tail"]
    refused = 0
    (at / "runs").mkdir(exist_ok=True)
    (at / "commits/0000000000000001").write_bytes(b"")  # nothing replaces the head
    for i in range(300):
        state, data = json.loads(json.dumps(top)), bytearray(run)
        wild = rnd.choice([-1, 0, 1, 2, 255, 1 << 31, 1 << 62, 1 << 63, None, "x", [], {}, 1.5])
        if i % 3 == 0:  # numbers of the state
            where = rnd.choice([state, *state["runs"], *state.get("archives", []), *([state["runs"][0]] * 3)])
            where[rnd.choice(list(where))] = wild
        else:  # a page or the end of the run, with the right checksums
            start, _, _ = struct.unpack("<QII", data[-24:-8])
            if i % 3 == 1:
                end = len(data) - tail
                for _ in range(rnd.randint(1, 3)):
                    data[rnd.randrange(14, end - 4)] = rnd.randrange(256)
                data[14:end] = sealed(bytes(data[14 : end - 4]))
            else:
                for _ in range(rnd.randint(1, 3)):
                    data[rnd.randrange(start, len(data) - 8)] = rnd.randrange(256)
                data[-12:-8] = struct.pack("<I", zlib.crc32(data[start:-24]))
        (at / "runs/0-X").write_bytes(data)
        if i % 3:
            state["runs"][0] |= {"object": "runs/0-X", "off": 0}
            state["tails"] = [0] * len(state["runs"])
        path.write_bytes(framed(magic, state, more))
        try:
            everything(at)
        except holdall.HoldallError:
            refused += 1
    assert 80 < refused < 300


def test_a_state_and_a_run_that_lead_elsewhere(copied):
    at, _ = copied
    top, more = parts(at / "head", catalog.STATE)
    shutil.rmtree(at / "commits")
    shutil.rmtree(at / "states", ignore_errors=True)
    for name in ("../x", "/etc/passwd", "a/../../x", "http://x/y", "a\x00b", "runs\\..\\x", "x?y"):
        top["runs"][0] |= {"object": name}
        (at / "head").write_bytes(framed(catalog.STATE, top, more))
        with pytest.raises(holdall.DamagedError, match="a run that cannot be"):
            holdall.open(at)


def test_commits_follow_each_other(copied):
    at, names = copied
    last = max(p.name for p in (at / "commits").iterdir())
    following = at / "commits" / f"{int(last) + 1:016}"
    top, _ = parts(at / "head", catalog.STATE)
    good = {"catalog": top["catalog"], "number": top["number"] + 1, "before": top["hash"], "add": [{"address": "./new.caf", "format": "caf", "size": 1}]}
    following.write_bytes(framed(catalog.COMMIT, good))
    assert list(holdall.open(at)) == names
    for change in ({"before": "0" * 64}, {"catalog": "ANOTHER"}, {"number": 3}, {"merged": ["runs/none+0"]}, {"runs": [{"size": 10, "tail": 5}]}, {"runs": [{"object": "runs/9-X", "size": 100, "tail": 50, "rows": 1}]}, {"add": good["add"] * (1 << 20) + good["add"]}):
        following.write_bytes(framed(catalog.COMMIT, good | change))
        with pytest.raises(holdall.DamagedError, match=following.name):
            holdall.open(at)
    following.write_bytes(framed(catalog.COMMIT, good | {"moved": [{"old": "./elsewhere", "new": "./x"}, {"old": "./", "new": "./sub/"}, {"old": "./sub/", "new": "./\\xff\\x5cx00/"}]}))
    rows = opening.find(at).rows
    assert {rows.archive(r.archive).address[:8] for r in rows.after(b"")} - {"s3://buc", "https://"} == {"./\udcff\\x00/"}
    assert rows.archive((top["number"] + 1) << 20) == ("./\udcff\\x00/new.caf", "caf", 1, "")
    drop = sorted({f["archive"] for f in vector("small" if "2026/05/001.jpg" in names else "many").values()})
    following.write_bytes(framed(catalog.COMMIT, good | {"drop": drop}))
    assert list(holdall.open(at)) == []


def test_a_catalogue_in_itself(copied):
    at, _ = copied
    top, more = parts(at / "commits" / "0000000000000002", catalog.COMMIT)
    (at / "head").unlink()
    shutil.rmtree(at / "states", ignore_errors=True)
    for a in top["add"]:
        a |= {"address": "./x.catalog", "version": ""}
    for commit in (at / "commits").iterdir():
        if int(commit.name) > 2:
            commit.unlink()
    first = at / "commits" / "0000000000000001"
    top["before"] = ""
    first.write_bytes(framed(catalog.COMMIT, top | {"number": 1}, more))
    (at / "commits" / "0000000000000002").unlink()
    a = holdall.open(at)
    with pytest.raises(holdall.UnsupportedError, match="is a catalogue|a folder"):
        [a[n] for n in a if not a.info(n).proven]


def text_of(b):
    return varint(len(b)) + b


def varint(n):
    out = b""
    while n >= 0x80:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def refs_of(refs):
    out, last = varint(len(refs)) + varint(refs[0][1]), b""
    for first, _, n, again in refs:
        shared = len(os.path.commonprefix([first, last]))
        out += varint(n << 1 | again) + varint(shared) + text_of(first[shared:])
        last = first
    return out


def page_of(rows):
    """A page with a block for every two rows. A row is a name and the number of its archive."""
    tables = varint(3) + b"".join(varint(0) + varint(i) + b"\0" for i in range(3)) + b"\0\0"
    blocks = []
    for i in range(0, len(rows), 2):
        blocks.append(b"".join(varint(0) + varint(0) + text_of(name) + varint(archive) + varint(7) for name, archive in rows[i : i + 2]))
    at, places = len(tables), b""
    for b in blocks:
        places += struct.pack("<I", at)
        at += len(b)
    return sealed(tables + b"".join(blocks) + places + struct.pack("<I", len(blocks)))


def test_two_levels_and_a_name_on_several_pages(tmp_path):
    rows = sorted([(b"%03d" % i, 0) for i in range(60)] + [(b"030", a) for a in (1, 2)], key=lambda r: (r[0], -r[1]))
    pages = [rows[i : i + 4] for i in range(0, len(rows), 4)]
    run, refs, last = b"holdall run 1\n", [], None
    for p in pages:
        data = page_of(p)
        refs.append((p[0][0], len(run), len(data), p[0][0] == last))
        run, last = run + data, p[-1][0]
    assert any(r[3] for r in refs), "the name is on two pages"
    end, nodes = len(run), []
    for i in range(0, len(refs), 4):
        data = sealed(zlib.compress(refs_of(refs[i : i + 4])))
        nodes.append((refs[i][0], len(run), len(data), refs[i][3]))
        run += data
    root = json.dumps({"rows": len(rows), "names": 60, "pages": len(pages), "filter": [end, 0], "levels": 2}).encode()
    tail = text_of(zlib.compress(refs_of(nodes) + text_of(b"059"))) + root
    start = len(run)
    run += tail + struct.pack("<QII", start, len(root), zlib.crc32(tail)) + b"holdrun1"
    at = tmp_path / "x.catalog"
    (at / "commits").mkdir(parents=True)
    ref = {"object": "", "size": len(run), "tail": len(run) - start, "rows": len(rows)}
    add = [{"address": f"./{i}.caf", "format": "caf", "size": 1} for i in range(3)]
    (at / "commits/0000000000000001").write_bytes(framed(catalog.COMMIT, {"catalog": "C", "number": 1, "add": add, "runs": [ref]}, run))
    a = holdall.open(at)
    assert list(a) == ["%03d" % i for i in range(60)] and len(a) == 60
    found = opening.find(at).rows
    for i in range(60):
        assert found.at(found.find(b"%03d" % i)).archive == (1 << 20) + 2 * (i == 30)
        assert [r.name for r in found.after(b"%03d" % i)] == [b"%03d" % k for k in range(i, 60)]
        assert found.find(b"%03d-" % i) == -1
    assert next(found.after(b"0300")).name == b"031" and list(found.after(b"06")) == []

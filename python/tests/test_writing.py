"""Archives that Python writes: what every reader finds in them, that they are the command's, and that nothing half is left."""

import errno
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import zipfile
import zlib

import pytest

import holdall
from holdall import writing

pytestmark = pytest.mark.skipif(os.name == "nt", reason="names and limits are those of Unix")
FORMATS = ("caf", "tar", "zip")
ALPHABET = ("a", "b", "é", " ", '"', "\n", "\x7f", "日本", "x" * 60, "d/" * 20 + "e", "\udcff")


@pytest.fixture(autouse=True)
def environment(holdall_command, monkeypatch):
    monkeypatch.setenv("HOLDALL", str(holdall_command))


def run(command, *args):
    done = subprocess.run([command, *map(str, args)], capture_output=True, env={**os.environ, "HOLDALL_CACHE": "none"})
    return done.returncode, done.stdout, done.stderr


def tree(seed, names=40):
    """Files with names and contents of all kinds, none of which is a folder of another."""
    r = random.Random(seed)
    files = {}
    for n in range(names):
        name = "/".join("".join(r.choices(ALPHABET, k=r.randint(1, 3))) for _ in range(r.randint(1, 4))) + f"_{n}"
        size = r.choice((0, 1, 3, 511, 512, 513, 5000, 70000))
        files[name] = r.randbytes(size) if r.random() < 0.6 else bytes(size)
    files["long"] = r.randbytes((2 << 20) + 17)
    files["zeros"] = bytes(3 << 20)
    return files


def forms(content, r):
    """The content as bytes, as other bytes, as a file, or in pieces."""
    cuts = sorted(r.randint(0, len(content)) for _ in range(3))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    return r.choice((content, bytearray(content), memoryview(content), io.BytesIO(content), iter(pieces), (p for p in pieces)))


def write(path, files, seed=0, **how):
    r = random.Random(seed)
    with holdall.create(path, **how) as w:
        for name, content in files.items():
            w[name] = forms(content, r)
        assert len(w) == len(files) and all(name in w for name in files) and "nothing" not in w
    return path


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", FORMATS)
def test_every_reader_finds_what_was_written(holdall_command, tmp_path, kind, seed):
    files = tree(seed)
    if kind != "caf":  # its own reader leaves names that are not UTF-8 to an index
        files = {name: content for name, content in files.items() if "\udcff" not in name}
    path = write(tmp_path / f"x.{kind}", files, seed)
    assert dict(holdall.open(path)) == files
    done = holdall.verify(path)
    assert (done.entries, done.errors, done.format) == (len(files), 0, kind)
    _, out, _ = run(holdall_command, "ls", "--json", "-R", path)
    assert {(line["kind"], line.get("mode"), line.get("mtime")) for line in map(json.loads, out.splitlines())} <= {
        "caf": {("file", None, None)},
        "tar": {("file", "0644", "1970-01-01T00:00:00Z")},
        "zip": {("file", "0644", "1980-01-01T00:00:00Z")},
    }[kind] | {("dir", None, None)}
    if kind == "tar":
        with tarfile.open(path) as t:
            assert {m.name: t.extractfile(m).read() for m in t} == files
    if kind == "zip":
        with zipfile.ZipFile(path) as z:
            assert z.testzip() is None and {name: z.read(name) for name in z.namelist()} == files


@pytest.mark.parametrize("seed", range(4))
def test_the_bytes_are_those_of_the_command(holdall_command, tmp_path, seed):
    """A CAF is what pack writes. A tar, and a zip of what cannot be compressed, are what convert makes of that."""
    files = {name: content if any(content) else b"" for name, content in tree(seed).items() if len(content) < 1 << 20}
    for name, content in files.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert run(holdall_command, "pack", "-o", tmp_path / "y.caf", tmp_path / "files")[0] == 0
    packed = holdall.open(tmp_path / "y.caf")
    order = sorted(packed, key=lambda name: os.fsencode(name).split(b"/"))
    ours = write(tmp_path / "x.caf", {name: files[name] for name in order})
    assert ours.read_bytes() == (tmp_path / "y.caf").read_bytes()
    for kind in ("tar", "zip"):
        ours = write(tmp_path / f"x.{kind}", {name: files[name] for name in order})
        assert run(holdall_command, "convert", tmp_path / "y.caf", tmp_path / f"y.{kind}")[0] == 0
        assert ours.read_bytes() == (tmp_path / f"y.{kind}").read_bytes()


def test_names_of_tars_are_as_in_go(holdall_command, tmp_path):
    """Around the lengths of 100 and 155, and where a name that is cut ends in a slash."""
    names = [("d" * a + "/") * b + "f" * c for a in (1, 49, 97, 98, 99, 100, 101, 154, 155, 156) for b in (1, 2) for c in (1, 98, 99, 100, 101)]
    names += ["é" * a + "/" + "n" * b + "/" + "ü" * c for a in (1, 30) for b in (96, 97, 98, 99, 100) for c in (1, 40)]
    names += ["é/" + "n" * 97 + "/é/é/ü", "z" * 255, "z" * 99 + "/é"]
    files = dict.fromkeys(names, b"1")
    write(tmp_path / "x.caf", files)
    write(tmp_path / "x.tar", files)
    assert run(holdall_command, "convert", tmp_path / "x.caf", tmp_path / "y.tar")[0] == 0
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()


@pytest.mark.parametrize("kind", ("tar", "zip"))
def test_the_header_of_a_huge_content_has_room(tmp_path, monkeypatch, kind):
    """As if what is huge began at 2 MiB: the header is longer than when the content began."""
    monkeypatch.setattr(writing, "MAX_OCTAL", 2 << 20)
    monkeypatch.setattr(writing, "MAX_32", 2 << 20)
    r = random.Random(1)
    files = {"a": b"small", "b": r.randbytes((5 << 20) + 3), "c": b"after"}
    monkeypatch.setattr(writing, "PIECE", 300_000)
    with holdall.create(tmp_path / f"x.{kind}") as w:
        for name, content in files.items():
            w.write(name, io.BytesIO(content))
    if kind == "tar":
        with tarfile.open(tmp_path / "x.tar") as t:
            assert {m.name: t.extractfile(m).read() for m in t} == files
    else:  # 2 MiB is no mark of a long number for other readers, so only what was moved is looked at
        stored = (tmp_path / "x.zip").read_bytes()
        packed = stored[stored.index(b"b\x01\x00\x10\x00") + 21 :]
        assert zlib.decompressobj(-15).decompress(packed) == files["b"]


def test_many_files_and_a_zip_of_them(tmp_path):
    files = {f"{n // 1000}/{n}": b"%d" % n for n in range(70_000)}
    with holdall.create(tmp_path / "x.zip") as w:
        w.update(files)
    with zipfile.ZipFile(tmp_path / "x.zip") as z:
        assert len(z.namelist()) == 70_000 and z.read("69/69999") == b"69999"
    assert holdall.verify(tmp_path / "x.zip").verdict == "sound"


ODD = {
    "": "it is empty",
    ".": "it is empty",
    "a\0b": "it contains a NUL byte",
    "..": "it contains ..",
    "../x": "it contains ..",
    "a/../b": "it contains ..",
    "/../b": "it contains ..",
    "a\\..\\b": "it contains ..",
    "/abs": "it is absolute",
    "//x": "it is absolute",
    "a//b": "it has empty or . elements",
    "./x": "it has empty or . elements",
    "a/./b": "it has empty or . elements",
}


@pytest.mark.parametrize("kind", ("tar", "zip"))
def test_odd_names_are_refused_as_the_command_refuses_them(holdall_command, tmp_path, kind):
    kept = ["C:\\x", "c:x", "a\\b", "..a/b", "a..b", "\\abs", "é", "n" * 300, "\udcff", "\x1b", "-"]
    rows = b",".join(b'%s:{"start_byte":0,"end_byte":0}' % json.dumps(name).encode() for name in [*ODD, *kept] if "\udcff" not in name)
    index = b'{"format_version":"1.0","files":{%b}}' % rows
    (tmp_path / "odd.caf").write_bytes(index + len(index).to_bytes(4, "little"))
    code, out, _ = run(holdall_command, "convert", "--json", tmp_path / "odd.caf", tmp_path / f"y.{kind}")
    left = {e.get("path", ""): e["message"].rpartition(": ")[2] for e in (json.loads(line).get("error") for line in out.splitlines()) if e}
    for at in ("caf", kind):
        with holdall.create(tmp_path / f"x.{at}") as w:
            for name, why in ODD.items():
                with pytest.raises(holdall.HoldallError) as refused:
                    w[name] = b""
                assert refused.value.reason == why and refused.value.name == name
            for name in kept:
                w[name] = b""
            with pytest.raises(holdall.HoldallError, match="in more than 2048 folders"):
                w["d/" * 2048 + "f"] = b""
            for wrong, error in ((b"a", TypeError), ("\ud800", holdall.HoldallError), ("é", holdall.HoldallError)):
                with pytest.raises(error):
                    w[wrong] = b""
    assert code == 1 and {name.replace("\0", "\\x00"): why for name, why in ODD.items()} == left


def test_names_that_conflict(tmp_path):
    with holdall.create(tmp_path / "x.tar") as w:
        w["a"] = b""
        with pytest.raises(holdall.HoldallError, match="'a' is not a directory"):
            w["a/b/c"] = b""
    with holdall.create(tmp_path / "x.caf") as w:
        w["\udcff"] = b""
        with pytest.raises(holdall.HoldallError, match="other readers replace invalid UTF-8"):
            w["\ufffd"] = b""
        w["a\udcff"] = w["b\ufffd"] = b""
        with pytest.raises(holdall.HoldallError, match="other readers replace invalid UTF-8"):
            w["b\udcfe"] = b""
    assert sorted(holdall.open(tmp_path / "x.caf")) == ["a\udcff", "b\ufffd", "\udcff"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_source_that_fails_leaves_nothing_of_its_file(tmp_path, kind):
    def broken(n):
        for _ in range(n):
            yield bytes(100_000)
        raise OSError(errno.EIO, "the source is broken")

    with holdall.create(tmp_path / f"x.{kind}") as w:
        w["a"] = b"before"
        for n in (0, 3, 50):
            with pytest.raises(OSError, match="the source is broken"):
                w["b"] = broken(n)
        for wrong in ("text", 5, None, io.StringIO("text"), ["text"], [5]):
            with pytest.raises(TypeError, match="a content "):
                w["b"] = wrong
        with pytest.raises(ValueError, match="one after the other"):
            w["b"] = (w.write("c", b"") or b"" for _ in range(1))
        w["b"] = b"after"
    assert dict(holdall.open(tmp_path / f"x.{kind}")) == {"a": b"before", "b": b"after"}
    assert holdall.verify(tmp_path / f"x.{kind}").verdict in ("sound", "unproven")
    with pytest.raises(ValueError, match="in a with block"):
        w["d"] = b""


@pytest.mark.parametrize("kind", FORMATS)
def test_an_archive_appears_whole_or_not_at_all(tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    with pytest.raises(ZeroDivisionError), holdall.create(path) as w:
        w["a"] = bytes(1 << 21)
        assert not path.exists() and len(os.listdir(tmp_path)) == 1
        1 / 0
    assert os.listdir(tmp_path) == []
    with holdall.create(path) as w:
        w["a"] = b"1"
    first = path.read_bytes()
    with pytest.raises(holdall.HoldallError, match="it exists already: force=True replaces it"), holdall.create(path):
        pass
    with pytest.raises(ZeroDivisionError), holdall.create(path, force=True) as w:
        w["a"] = b"2"
        1 / 0
    assert path.read_bytes() == first
    with holdall.create(path, force=True) as w:
        w["a"] = b"2"
    assert holdall.open(path)["a"] == b"2"
    path.unlink()
    with pytest.raises(holdall.HoldallError, match="it exists already"), holdall.create(path) as w:
        path.write_bytes(b"of someone else")
    assert path.read_bytes() == b"of someone else" and os.listdir(tmp_path) == [path.name]
    with holdall.create(path, force=True):
        pass
    assert holdall.verify(path)[1:4] == ("sound", kind, 0)
    path.chmod(0o600)
    with holdall.create(path, force=True) as w:
        w["a"] = b"private"
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with holdall.create(tmp_path / "link", format=kind, force=True) as w:
        w["a"] = b"through a link"
    assert (tmp_path / "link").is_symlink() and holdall.open(path)["a"] == b"through a link"
    path.unlink()
    for make in (path.mkdir, lambda: os.mkfifo(path)):
        make()
        with pytest.raises(holdall.HoldallError, match="it is not a file"), holdall.create(path, force=True):
            pass
        path.rmdir() if path.is_dir() else path.unlink()


def test_an_interrupt_that_is_caught_leaves_no_archive(tmp_path):
    def interrupted():
        yield b"1"
        raise KeyboardInterrupt

    with pytest.raises(holdall.HoldallError, match="it could not be written"), holdall.create(tmp_path / "x.tar") as w:
        with pytest.raises(KeyboardInterrupt):
            w["a"] = interrupted()
    assert os.listdir(tmp_path) == []


def test_where_there_are_no_links(tmp_path, monkeypatch):
    def no(*_):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no)
    with holdall.create(tmp_path / "x.caf") as w:
        w["a"] = b"1"
    assert holdall.open(tmp_path / "x.caf")["a"] == b"1"
    with pytest.raises(holdall.HoldallError, match="no links here"), holdall.create(tmp_path / "y.caf") as w:
        (tmp_path / "y.caf").write_bytes(b"")
    assert sorted(os.listdir(tmp_path)) == ["x.caf", "y.caf"]


def test_what_create_does_not_write(tmp_path):
    for name in ("x", "x.tar.gz", "x.lindi.tar", "x.rvn"):
        with pytest.raises(holdall.UnsupportedError, match="holdall.pack writes the others"):
            holdall.create(tmp_path / name)
    with pytest.raises(holdall.UnsupportedError):
        holdall.create("s3://bucket/x.caf")
    with pytest.raises(holdall.UnsupportedError):
        holdall.create("age:x.caf")
    with pytest.raises(holdall.NotFoundError), holdall.create(tmp_path / "no" / "x.caf"):
        pass
    with holdall.create(tmp_path / "odd", format="caf") as w:
        w["a"] = b""
    assert list(holdall.open(tmp_path / "odd")) == ["a"]


CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it for what is in its background
sys.path[:0] = {path!r}
import holdall
with holdall.create({name!r}) as w:
    for n in range(100):
        if n == {n}:
            print("now", flush=True)
            signal.pause()
        w[str(n)] = bytes(50_000)
"""


@pytest.mark.parametrize("kind", FORMATS)
def test_a_killed_writer_leaves_nothing_under_the_name(holdall_command, tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    for n, how in ((0, signal.SIGKILL), (70, signal.SIGKILL), (99, signal.SIGINT)):
        child = subprocess.Popen([sys.executable, "-c", CHILD.format(path=sys.path, name=str(path), n=n)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert child.stdout.readline() == b"now\n"
        # Another writer of the name does not remove what is being written.
        assert len(os.listdir(tmp_path)) == 1
        with pytest.raises(ZeroDivisionError), holdall.create(path):
            1 / 0
        if not n:
            assert run(holdall_command, "pack", "-q", "-o", path, __file__)[0] == 0
            path.unlink()
        assert len(os.listdir(tmp_path)) == 1
        child.send_signal(how)
        child.wait()
        child.stdout.close()
        assert not path.exists() and len(os.listdir(tmp_path)) == (how == signal.SIGKILL)
        # The next writer of the name removes it, and so does the command.
        if n:
            with pytest.raises(ZeroDivisionError), holdall.create(path):
                1 / 0
        else:
            assert run(holdall_command, "pack", "-q", "-o", path, __file__)[0] == 0
            path.unlink()
        assert os.listdir(tmp_path) == []


COMMITTING = """
import os, sys
sys.path[:0] = {path!r}
import holdall
os.{step} = lambda *_: os.kill(os.getpid(), 9)
with holdall.create({name!r}) as w:
    w["a"] = b"1"
"""


def test_a_writer_that_is_killed_at_the_end_leaves_all_or_nothing(tmp_path):
    for step in ("fsync", "link", "unlink"):
        path = tmp_path / step / "x.caf"
        path.parent.mkdir()
        program = COMMITTING.format(path=sys.path, name=str(path), step=step)
        assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
        assert path.exists() == (step == "unlink") and len(os.listdir(path.parent)) == 1 + path.exists()
    assert dict(holdall.open(path)) == {"a": b"1"}
    with holdall.create(path, force=True) as w:
        w["a"] = b"2"
    assert os.listdir(path.parent) == ["x.caf"]


LIMITED = """
import random, resource, sys
sys.path[:0] = {path!r}
import holdall
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
try:
    with holdall.create({name!r}) as w:
        for n in range(10):
            try:
                w[str(n)] = {content}
            except holdall.HoldallError as err:
                if not {goes_on}: raise
except holdall.HoldallError as err:
    print(err)
"""


@pytest.mark.parametrize("content", ("bytes(range(256)) * 40_000", "random.randbytes(600_000)", "(b'x' * 999 for _ in range(10_000))"))
@pytest.mark.parametrize("kind", FORMATS)
def test_a_full_disk_leaves_nothing(tmp_path, kind, content):
    for goes_on in (False, True):
        name = str(tmp_path / f"x.{kind}")
        program = LIMITED.format(path=sys.path, name=name, content=content, goes_on=goes_on)
        done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
        if kind == "zip" and "random" not in content:  # it fits
            assert done.stdout == "" and len(holdall.open(name)) == 10
            os.unlink(name)
            continue
        assert done.stderr == ""
        if goes_on and not done.stdout:  # what was refused could be taken back, so the archive is whole without it
            assert holdall.verify(name).entries == 0
            os.unlink(name)
            continue
        assert done.stdout.startswith(name)
        if not goes_on:
            assert os.strerror(errno.EFBIG) in done.stdout
        assert os.listdir(tmp_path) == []


def test_an_index_beside_it(tmp_path, monkeypatch):
    with holdall.create(tmp_path / "x.tar", index=True) as w:
        w["a"] = b"1"
    a = holdall.open(tmp_path / "x.tar")
    assert a.index == str(tmp_path / "x.tar.holdall") and a["a"] == b"1"
    monkeypatch.delenv("HOLDALL")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(holdall.UnsupportedError, match="there is no such command"), holdall.create(tmp_path / "y.caf", index=True):
        pass
    assert not (tmp_path / "y.caf").exists()


def test_without_blake3_there_is_no_caf(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "blake3", None)
    with pytest.raises(holdall.UnsupportedError, match="writing CAF needs the package blake3"):
        holdall.create(tmp_path / "x.caf")

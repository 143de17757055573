"""Every archive among the fixtures: what is read here is what the command reads, and what it refuses is refused."""

import hashlib
import json
import os
import pathlib
import re
import subprocess

import pytest

import holdall

ROOT = pathlib.Path(__file__).parent.parent.parent
OAK = ROOT / "internal/oak/testdata"
CAF = ROOT / "format/caf/testdata/fixtures"
FOLDERS = [*ROOT.glob("format/*/testdata"), CAF.parent / "logs", CAF, CAF / "set-plain", CAF / "set-edges"]
NO_ARCHIVE = re.compile(r"README.*|fuzz|fixtures|logs|misplaced|split|set-.*|.*\.(txt|md|expect\.json|expect\.json\.gz)")

FIXTURES = sorted(p for f in FOLDERS for p in f.iterdir() if not NO_ARCHIVE.fullmatch(p.name))
CASES = [(p, "") for p in [*FIXTURES, *sorted(OAK.glob("*.tar.gz"))]] + [(p, "zarr") for p in FIXTURES if ".lindi." in p.name]


def start(command, *args):
    env = {**os.environ, "HOLDALL_CACHE": "none"}
    return subprocess.Popen([command, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]


def name_of(line):
    """The name in a line of the command, whose bytes may be escaped."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), line["path"].encode())


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def read_all(a):
    """The digests of all contents, and what was wrong with the others."""
    right, wrong = {}, {}
    for name in a:
        try:
            right[os.fsencode(name)] = sha256(a[name])
        except holdall.HoldallError as err:
            wrong[os.fsencode(name)] = err.reason
    names = list(map(os.fsdecode, right))
    assert list(map(sha256, a.read_many(names))) == list(right.values())
    return right, wrong


def test_there_are_fixtures():
    assert len(CASES) > 280


@pytest.mark.parametrize("path, view", CASES, ids=lambda x: getattr(x, "name", x))
@pytest.mark.filterwarnings("ignore::holdall.StaleIndexWarning")
def test_the_same_bytes_and_the_same_damage(holdall_command, tmp_path, path, view):
    if path.parent == OAK:  # a store is a folder in this tar
        _, said = start(holdall_command, "extract", "-q", "--no-sync", "-C", tmp_path, path).communicate()
        path = tmp_path / "segmentstore"
        assert path.is_dir(), said
    views = ["--view", view] if view else []
    index = tmp_path / "index.holdall"
    sums = start(holdall_command, "verify", "--sums", "sha256", "--json", *views, path)
    indexes = start(holdall_command, "index", "-q", *views, "-o", index, path)
    out, said = sums.communicate()
    indexes.communicate()
    right = {name_of(line): line["digest"].removeprefix("sha256:") for line in lines(out)}
    errors = [line["error"] for line in lines(said)]
    wrong = {name_of(e) for e in errors if "path" in e}

    read = 0
    for by in [False, str(index)] if index.exists() else [False]:
        try:
            a = holdall.open(path, index=by, view=view or None)
        except holdall.UnsupportedError as err:
            assert by is False and ("holdall index" in err.reason or not right)
            continue
        except holdall.DamagedError:
            assert by is False and any("path" not in e for e in errors)  # the command says so, too, and shows what is left
            continue
        got, refused = read_all(a)
        read += 1
        # What describes a LINDI archive is not listed by the command, but is read by its name.
        own = {name: got[name] for name in got if name not in right}
        if own:
            names = list(map(os.fsdecode, own))
            assert start(holdall_command, "cat", path, *names).communicate()[0] == b"".join(a.read_many(names))
        # A few contents lie in so many places that an index has none of them.
        elsewhere = {name: right[name] for name, reason in refused.items() if "holdall cat reads it" in reason and name in right}
        assert got | elsewhere == right | own
        assert refused.keys() - elsewhere == wrong
        assert not own or ".lindi." in path.name
        assert len(elsewhere) <= 3
    assert read or sums.returncode, "the command reads it"

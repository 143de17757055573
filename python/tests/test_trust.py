"""What a trusted key has not signed is not read."""

import os
import pickle
import random
import subprocess

import pytest

import holdall
from holdall import trust
from holdall.objects import LocalFile

FILES = {"a": b"alpha", "d/b": b"beta" * 3000, "d/e": b"", "big": bytes(range(256)) * 3000, "ü": b"unicode"}
FORGED = {**FILES, "a": b"ALPHA", "d/b": b"BETA" * 3000, "more": b"more"}


@pytest.fixture
def signed(holdall_command, pack, tmp_path):
    """Makes a signed archive: signed(files, name) -> its path and the key."""

    def make(files, name, key="k"):
        if not (tmp_path / key).exists():
            subprocess.run([holdall_command, "sign", "-q", "--new-key", str(tmp_path / key)], check=True)
        path = pack(files, name)
        subprocess.run([holdall_command, "sign", "-q", str(path), "--key", str(tmp_path / key)], check=True)
        return path, tmp_path / (key + ".pub")

    return make


@pytest.mark.parametrize("name", ["x.caf", "x.tar", "x.zip", "x.rvn"])
def test_what_is_signed_is_read(signed, serve, name):
    path, key = signed(FILES, name)
    text = key.read_text().splitlines()[1]
    for how in (key, str(key), text, [text, key]):
        with holdall.open(path, trusted=how) as a:
            assert dict(a.items()) == FILES and a.verifies
            assert dict(pickle.loads(pickle.dumps(a)).items()) == FILES
    with holdall.open(f"{serve(path.parent)}/{name}", trusted=key) as a:
        assert a["d/b"] == FILES["d/b"] and a.open("big").read(10) == FILES["big"][:10]
    assert len(holdall.open([path, path], trusted=key)) == 2 * len(FILES)


def test_the_variable_is_obeyed(signed, pack, monkeypatch):
    path, key = signed(FILES, "x.caf")
    other = pack(FORGED, "y.caf", index=True)
    monkeypatch.setenv("HOLDALL_TRUSTED", str(key))
    assert holdall.open(path)["a"] == b"alpha"
    for what in (other, [path, other]):
        with pytest.raises(holdall.UntrustedError, match="no signature"):
            holdall.open(what)


def test_what_is_not_signed_is_refused(signed, tmp_path):
    path, key = signed(FILES, "x.caf")
    forged, other = signed(FORGED, "y.caf", "other")
    with pytest.raises(holdall.UntrustedError, match="another key"):
        holdall.open(path, trusted=other)
    with pytest.raises(holdall.UntrustedError, match="contents are compared"):
        holdall.open(path, trusted=key, verify=False)
    with pytest.raises(holdall.UntrustedError, match="contents are compared"):
        holdall.open(path, trusted=key, index=False)
    with pytest.raises(ValueError, match="no keys"):
        holdall.open(path, trusted=[])
    with pytest.raises(holdall.UntrustedError, match="not a public key"):
        holdall.open(path, trusted=path)
    rnd = random.Random(1)
    parts = [path, path.with_name("x.caf.holdall"), path.with_name("x.caf.minisig")]
    sound = [p.read_bytes() for p in parts]
    others = [p.with_name(p.name.replace("x", "y", 1)).read_bytes() for p in parts]
    whole = 0
    for _ in range(150):
        broken = list(sound)
        i = rnd.randrange(3)
        if rnd.random() < 0.1:
            broken[i] = others[i]
        else:
            b = bytearray(broken[i])
            b[rnd.randrange(len(b))] ^= 1 << rnd.randrange(8)
            broken[i] = bytes(b)
        for p, b in zip(parts, broken, strict=True):
            p.write_bytes(b)
        try:
            with holdall.open(path, trusted=key) as a:
                assert set(a) == set(FILES)
                for name in a:
                    try:
                        assert a[name] == FILES[name]
                    except holdall.HoldallError:
                        pass
            whole += 1
        except holdall.HoldallError:
            pass
    assert 8 < whole < 110


def test_a_signed_catalogue_is_what_it_was(holdall_command, pack, serve, tmp_path, monkeypatch):
    def run(*args):
        subprocess.run([holdall_command, *map(str, args)], check=True)

    book, key = tmp_path / "x.catalog", tmp_path / "k.pub"
    monkeypatch.setenv("HOLDALL_CATALOG", str(book))
    run("catalog", "init", "-q")
    run("catalog", "add", "-q", pack(FILES, "x.caf"), pack({"in/rvn": b"compressed" * 99}, "y.rvn", index=True))
    want = {**FILES, "in/rvn": b"compressed" * 99}
    with pytest.raises(holdall.UntrustedError, match="another key|no signature|none"):
        run("sign", "-q", "--new-key", tmp_path / "k")
        holdall.open(book, trusted=key)
    run("sign", "-q", book, "--key", tmp_path / "k")
    run("catalog", "add", "-q", pack({"later": b"later"}, "z.caf"))
    with holdall.open(book, trusted=key) as a:
        assert dict(a.items()) == want and a.verifies
        assert a.open("in/rvn").read(7) == b"compres" and a.open("big").read(10) == FILES["big"][:10]
        run("sign", "-q", book, "--key", tmp_path / "k")
        with pytest.raises(holdall.StaleIndexError, match="signed again"):
            len(pickle.loads(pickle.dumps(a)))
    with holdall.open(f"{serve(tmp_path)}/x.catalog", trusted=key) as a:
        assert dict(a.items()) == {**want, "later": b"later"}
        assert dict(pickle.loads(pickle.dumps(a)).items()) == dict(a.items())
    archive = tmp_path / "x.caf"
    times = (archive.stat().st_atime_ns, archive.stat().st_mtime_ns)
    archive.write_bytes(archive.read_bytes().replace(b"alpha", b"ALPHA"))
    os.utime(archive, ns=times)
    with holdall.open(book, trusted=key) as a, pytest.raises(holdall.DamagedError):
        a["a"]
    (state,) = (p for p in (book / "signed").iterdir() if p.name in (tmp_path / "x.catalog.minisig").read_text())
    state.write_bytes(state.read_bytes() + b"x")
    with pytest.raises(holdall.UntrustedError, match="not what was signed"):
        holdall.open(book, trusted=key)


def test_forged_signatures_are_refused(signed):
    path, key = signed(FILES, "x.caf")
    sig = path.with_name("x.caf.minisig")
    sound, keys, obj = sig.read_bytes(), trust.keys(key), LocalFile(str(path))
    assert len(trust.root(obj, keys)) == 64
    rnd = random.Random(2)
    from_ = sound.index(b"\n") + 1
    for _ in range(40):
        b = bytearray(sound)
        b[rnd.randrange(from_, len(b) - 1)] ^= 1 << rnd.randrange(8)
        sig.write_bytes(b)
        with pytest.raises(holdall.UntrustedError):
            trust.root(obj, keys)


def test_vectors_of_rfc_8032():
    key = bytes.fromhex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025")
    sig = bytes.fromhex("6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a")
    assert trust._verifies(key, b"\xaf\x82", sig)
    assert not trust._verifies(key, b"\xaf\x83", sig)
    for i in range(64):
        assert not trust._verifies(key, b"\xaf\x82", sig[:i] + bytes([sig[i] ^ 1]) + sig[i + 1 :])
    assert not trust._verifies(os.urandom(32), b"\xaf\x82", sig)

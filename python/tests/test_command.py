"""The command from Python: typed results, its words as errors, and what is said if there is none."""

import os
import pathlib
import pickle
import subprocess
import sys

import pytest

import holdall

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands are scripts here")


@pytest.fixture(autouse=True)
def environment(holdall_command, monkeypatch):
    monkeypatch.setenv("HOLDALL", str(holdall_command))
    monkeypatch.setenv("HOLDALL_CACHE", "none")


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "docs" / "guide").mkdir(parents=True)
    for name in ("intro.md", "guide/a.txt", "guide/b.txt"):
        (tmp_path / "docs" / name).write_text(name)
    return tmp_path / "docs"


def test_pack_index_verify_convert_extract(tmp_path, docs, monkeypatch):
    archive = tmp_path / "-docs.caf"
    packed = holdall.pack(docs, archive, timestamp=0, exclude=["b.*", "nothing"], dedupe=True, follow=None, strict=False)
    assert packed[:3] == (2, 19, archive.stat().st_size) and packed.base == str(docs)
    assert packed.unmatched == ["nothing"] and packed.lost and packed.volumes == [archive.name]
    made = holdall.index(archive, chunk_digests="64KiB")
    assert made[:3] == (str(archive) + ".holdall", 2, 19) and made.index_bytes == os.path.getsize(made.path) and made.digests == 2
    assert holdall.open(archive).index
    done = holdall.verify(archive)
    assert done[:7] == (str(archive), "sound", "caf", 2, 19, 0, 0) and done.proven["digest"] == 2 and done.findings == []
    again = holdall.convert(archive, tmp_path / "docs.zip")
    assert again.entries == 2 and dict(holdall.open(tmp_path / "docs.zip")) == dict(holdall.open(archive))
    out = holdall.extract(archive, tmp_path / "out", ["guide"])
    assert out[:2] == (2, 11) and (tmp_path / "out" / "guide" / "a.txt").read_text() == "guide/a.txt"
    assert holdall.pack([docs, docs / "intro.md"], tmp_path / "two", "tar").bytes == 38
    chunks = holdall.pack(docs, tmp_path / "c.caf", chunk_size=12)
    assert len(chunks.volumes) == 3
    monkeypatch.chdir(tmp_path)
    assert holdall.verify("-docs.caf").verdict == "sound"


def test_damage_is_a_result_of_verify_and_an_error_of_others(tmp_path, docs):
    archive = tmp_path / "x.caf"
    holdall.pack(docs, archive)
    b = bytearray(archive.read_bytes())
    b[0] ^= 1
    archive.write_bytes(b)
    done = holdall.verify(archive)
    assert (done.verdict, done.errors) == ("damaged", 1)
    assert done.findings[0]["code"] == "bad-checksum" and done.findings[0]["path"] == "guide/a.txt"
    for call in (lambda: holdall.extract(archive, tmp_path / "out"), lambda: holdall.index(archive, chunk_digests=True)):
        with pytest.raises(holdall.CommandError, match="guide/a.txt: expected blake3:") as err:
            call()
        assert err.value.exit_code == 1 and err.value.result.findings
    assert err.value.result.unproven == 1
    with pytest.raises(holdall.CommandError, match="guide/a.txt") as err:
        holdall.convert(archive, tmp_path / "y.caf")
    assert (err.value.exit_code, err.value.result.entries, err.value.result.failed) == (1, 2, 1)
    assert len(holdall.open(tmp_path / "y.caf")) == 2


def test_errors_are_sentences_of_the_command(tmp_path, docs):
    (docs / "link").symlink_to("intro.md")
    with pytest.raises(holdall.CommandError, match="^link: caf cannot store an entry of kind symlink$") as err:
        holdall.pack(docs, tmp_path / "x.caf")
    assert err.value.exit_code == 1 and err.value.result.dropped == {"symlink": 1}
    with pytest.raises(holdall.CommandError, match="^verify: open .*nope.caf: no such file or directory") as err:
        holdall.verify(tmp_path / "nope.caf")
    assert (err.value.exit_code, err.value.code, err.value.result) == (2, "not-found", None)
    assert str(pickle.loads(pickle.dumps(err.value))) == str(err.value) and isinstance(err.value, holdall.HoldallError)
    with pytest.raises(holdall.CommandError, match="unknown flag: --bogus") as err:
        holdall.pack(docs, tmp_path / "y.caf", bogus=1)
    assert err.value.exit_code == 2 and not (tmp_path / "y.caf").exists()
    with pytest.raises(holdall.CommandError, match="sums"):  # which has no such result
        holdall.verify(tmp_path / "x.caf", sums="wrong")


def test_progress_is_lines_of_text(tmp_path, docs, holdall_command, monkeypatch):
    """The command says something every ten seconds, so a script says it at once."""
    script = tmp_path / "holdall"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *--progress=plain*) echo 'holdall: pack: 1,234 entries, 5.0 MiB packed, 1.0 MiB/s, 4s left of 9.0 MiB' >&2;; esac
exec {holdall_command} "$@"
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("HOLDALL", str(script))
    seen = []
    holdall.pack(docs, tmp_path / "x.caf", progress=seen.append)
    assert seen == ["1,234 entries, 5.0 MiB packed, 1.0 MiB/s, 4s left of 9.0 MiB"]
    (docs / "link").symlink_to("intro.md")
    with pytest.raises(holdall.CommandError, match="^link: "):
        holdall.pack(docs, tmp_path / "y.caf", progress=seen.append)
    with pytest.raises(ZeroDivisionError):
        holdall.pack(docs, tmp_path / "z.caf", progress=lambda line: 1 / 0)
    holdall.verify(tmp_path / "x.caf")
    assert len(seen) == 2


def test_which_command_it_is(tmp_path, docs, holdall_command, monkeypatch):
    monkeypatch.delenv("HOLDALL")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "holdall").symlink_to(pathlib.Path(holdall_command).resolve())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert holdall.pack(docs, tmp_path / "x.caf").entries == 3
    monkeypatch.setenv("PATH", str(docs))
    with pytest.raises(holdall.UnsupportedError, match="wheels for Linux, macOS and Windows have it"):
        holdall.verify(tmp_path / "x.caf")
    monkeypatch.setenv("HOLDALL", str(tmp_path / "nothing"))
    with pytest.raises(holdall.UnsupportedError), holdall.create(tmp_path / "y.caf", index=True):
        pass
    assert not (tmp_path / "y.caf").exists()
    with pytest.raises(holdall.UnsupportedError, match="nothing: there is no such command"):
        holdall.verify(tmp_path / "x.caf")
    (tmp_path / "nothing").write_bytes(bytes(100))
    (tmp_path / "nothing").chmod(0o755)
    with pytest.raises(holdall.UnsupportedError, match="nothing: the command does not run: "):
        holdall.verify(tmp_path / "x.caf")


def test_the_version_is_a_string():
    assert isinstance(holdall.__version__, str) and holdall.__version__
    with pytest.raises(AttributeError):
        holdall.nothing
    said = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; import holdall; print(sorted(holdall.__all__))"], capture_output=True)
    assert b"create" in said.stdout and all(hasattr(holdall, name) for name in holdall.__all__)

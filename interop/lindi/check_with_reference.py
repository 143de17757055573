#!/usr/bin/env python3
"""Check (or extend) LINDI archives with the reference package `lindi` and python's tarfile.

  check_with_reference.py check    ARCHIVE EXPECT.json [--exact] [--allow-dropped-orphans] [--superset] [--base DIR]
  check_with_reference.py append   ARCHIVE [--seed N] [--blobs N] [--grow-json BYTES] [--out EXPECT.json] [--base DIR] [--expect EXPECT.json]
  check_with_reference.py describe ARCHIVE [--out EXPECT.json] [--base DIR]
  check_with_reference.py export   ARCHIVE DIR [--base DIR] [--expect EXPECT.json]
  check_with_reference.py scan     ARCHIVE          (header scan only; needs no lindi)
  check_with_reference.py batch                     (command lines on standard input; see below)

ARCHIVE may be .lindi.tar, .lindi.json or .lindi.d.  (`ARCHIVE EXPECT.json` with no mode word means check.)

check     every section that EXPECT.json has is compared; a section that is missing is not.  What is always
          checked on a .lindi.tar: the reference opens it; .tar_entry.json is member 0 (o=0 d=512 s=1024); entry
          and index agree; every index row has the same offset, data offset and size in tarfile's member list;
          the file ends in >= 1024 zero bytes directly after the last member; no live header is absent from the
          index; lindi.json parses.
          Default comparison is by CONTENT (names, sizes, sha256, decoded bytes of every rfs key, arrays), so an
          archive rewritten by another tool with other offsets passes.  --exact also compares o/d, the
          whole-file sha256 and the raw refs.  --allow-dropped-orphans: blobs no ref points at may be gone and
          blob names may differ (compaction).  --superset: the archive may hold more than EXPECT lists (after an append).
append    open with the reference in r+, add group `holdall_append_<seed>` holding an uncompressed blob dataset
          (12,000 B), a compressed blob dataset, an inline dataset, a string array, attributes and a soft link,
          flush, add one more, close, reopen, verify; writes/prints a fresh description to check Go against.
export    write what the reference reads of each key as the file DIR/KEY; keys that it cannot read are left out.
batch     each line of standard input is a JSON list, a command line as above; each is answered by one line
          {"code": N, "stdout": "...", "stderr": "..."} on standard output, so that importing the reference,
          a second or so, is paid for once.
exit 0 = all equal; 1 = differences (listed on stderr); 2 = could not run.
"""
import argparse, contextlib, hashlib, io, json, math, os, sys, tarfile, traceback

sys.dont_write_bytecode = True      # nothing is left beside the scripts
SPECIAL = (".tar_entry.json", ".tar_index.json", "lindi.json")


def sha(b):
    return hashlib.sha256(b).hexdigest()


# ---------------------------------------------------------------- plain tar header walk (no lindi needed)
def _field_octal(b):
    b = b.split(b"\0")[0].strip()
    return int(b, 8) if b else 0


def parse_header(h):
    """Return (name, size, typeflag) for a valid ustar header block, else None."""
    if len(h) < 512 or h[257:263] != b"ustar\0":
        return None
    try:
        want = _field_octal(h[148:156])
        size = _field_octal(h[124:136])
    except ValueError:
        return None
    if sum(h[:148]) + 32 * 8 + sum(h[156:512]) != want:
        return None
    name = h[:100].split(b"\0")[0].decode("utf-8", "surrogateescape")
    prefix = h[345:500].split(b"\0")[0].decode("utf-8", "surrogateescape")
    return (prefix + "/" + name if prefix else name), size, chr(h[156])


def scan_headers(path):
    """Walk 512-byte headers from offset 0; resynchronise on damage.  -> (rows, notes)"""
    rows, notes = [], []
    size_on_disk = os.path.getsize(path)
    with open(path, "rb") as f:
        pos, lost = 0, False
        while pos + 512 <= size_on_disk:
            f.seek(pos)
            h = f.read(512)
            p = parse_header(h)
            if p is None:
                if h != b"\0" * 512 and not lost:
                    notes.append(f"no valid header at {pos}; resynchronising")
                    lost = True
                pos += 512
                continue
            lost = False
            name, size, typ = p
            have = max(0, min(size, size_on_disk - (pos + 512)))
            data = f.read(have)
            rows.append(dict(n=name, o=pos, d=pos + 512, s=size, type=typ, complete=have == size,
                             bytes_present=have, sha256=sha(data) if have == size else None,
                             trash=name.startswith(".trash/"), all_dashes=have > 0 and data == b"-" * have))
            pos += 512 + (size + 511) // 512 * 512
        tail = 0
        f.seek(max(0, size_on_disk - 1024))
        if f.read() == b"\0" * 1024:
            tail = 1024
        if size_on_disk % 512:
            notes.append(f"file length {size_on_disk} is not a multiple of 512")
        if not tail:
            notes.append("file does not end in 1024 zero bytes")
    return rows, notes


# ---------------------------------------------------------------- reading with the reference
@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def canon(x):
    """JSON-able copy with non-finite floats turned into {"$float": "NaN"|"Infinity"|"-Infinity"}."""
    if isinstance(x, float) and not math.isfinite(x):
        return {"$float": "NaN" if math.isnan(x) else ("Infinity" if x > 0 else "-Infinity")}
    if isinstance(x, (list, tuple)):
        return [canon(y) for y in x]
    if isinstance(x, dict):
        return {k: canon(v) for k, v in x.items()}
    if isinstance(x, bytes):
        return {"$bytes": x.hex()}
    return x


def canon_json(x):
    return json.dumps(canon(x), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def array_record(f, path, zarray, zattrs):
    import numpy as np
    za = f._zarr_group[path]
    rec = dict(shape=zarray["shape"], dtype=zarray["dtype"], chunks=zarray["chunks"],
               compressor=zarray.get("compressor"), filters=zarray.get("filters"),
               fill_value=canon(zarray.get("fill_value")), order=zarray.get("order", "C"))
    if zattrs.get("_SCALAR"):
        rec["scalar"] = True
    if "_COMPOUND_DTYPE" in zattrs:
        rec["compound_dtype"] = zattrs["_COMPOUND_DTYPE"]
    if "_EXTERNAL_ARRAY_LINK" in zattrs:
        rec["external_array_link"] = zattrs["_EXTERNAL_ARRAY_LINK"]
    try:
        with quiet():
            a = f[path][...] if "_EXTERNAL_ARRAY_LINK" in zattrs else za[...]
        a = np.asarray(a)
        if a.dtype.kind == "O":
            v = a.tolist()
            rec["values_sha256"] = sha(canon_json(v))
            if len(canon_json(v)) < 4000:
                rec["values"] = canon(v)
        else:
            rec["data_sha256"] = sha(np.ascontiguousarray(a).tobytes())
            rec["nbytes"] = int(a.nbytes)
            if a.size <= 16 and a.dtype.kind in "iufbSU":
                rec["values"] = canon(a.tolist())
    except Exception as e:
        rec["read_error"] = f"{type(e).__name__}: {e}"[:300]
    return rec


def fast_retries():
    """The reference sleeps 0.1, 0.2 ... 6.4 s between 8 tries of an unreachable URL; do not wait here."""
    import time, types
    m = sys.modules["lindi.LindiH5pyFile.LindiReferenceFileSystemStore"]
    m.time = types.SimpleNamespace(sleep=lambda s: None, time=time.time)


class UrlMap:
    """Serve local folders for placeholder URL prefixes, through lindi's own URL-resolver hook."""
    def __init__(self, url_map, base):
        self.url_map, self.base, self.servers = url_map or {}, base, []
    def __enter__(self):
        if not self.url_map:
            return self
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from rangeserver import serve
        import lindi
        from lindi.LindiRemfile import additional_url_resolvers as aur
        m = {}
        for prefix, rel in self.url_map.items():
            s, b, _ = serve(os.path.join(self.base, rel))
            self.servers.append(s)
            m[prefix] = b + "/"
        def resolver(u):
            for p, b in m.items():
                if u.startswith(p):
                    return b + u[len(p):]
            return u
        self.aur = aur
        lindi.add_additional_url_resolver(resolver)
        return self
    def __exit__(self, *a):
        if self.servers:
            for s in self.servers:
                s.shutdown()
            self.aur._global["additional_url_resolvers"].clear()
        return False


def describe(path, base=None, url_map=None):
    """What the reference reads out of an archive, as an expect.json dict."""
    import lindi
    from lindi.tar.lindi_tar import LindiTarFile
    fast_retries()
    path = os.path.abspath(path)
    base = os.path.abspath(base or os.path.dirname(path))
    out = dict(kind="lindi.d" if os.path.isdir(path) else "lindi.json" if path.endswith(".json") else "lindi.tar")
    if url_map:
        out["url_map"] = url_map
    cwd = os.getcwd()
    os.chdir(base)              # the reference resolves relative external paths against the process's folder
    try:
        if out["kind"] == "lindi.tar":
            out["file"] = dict(size=os.path.getsize(path), sha256=sha(open(path, "rb").read()))
            rows, notes = scan_headers(path)
            out["tar_scan"] = rows
            if notes:
                out["scan_notes"] = notes
        elif out["kind"] == "lindi.d":
            files = []
            for dp, _, fns in os.walk(path):
                for fn in fns:
                    p = os.path.join(dp, fn)
                    files.append(dict(n=os.path.relpath(p, path), s=os.path.getsize(p), sha256=sha(open(p, "rb").read())))
            out["files"] = sorted(files, key=lambda r: r["n"])
        try:
            with quiet():
                f = lindi.LindiH5pyFile.from_lindi_file(path)
        except Exception as e:
            out["reference_opens"] = False
            out["reference_error"] = f"{type(e).__name__}: {e}"[:300]
            return out
        out["reference_opens"] = True
        with UrlMap(url_map, base):
            st = f._zarr_store
            st = getattr(st, "_base_store", st)
            if out["kind"] == "lindi.tar":
                tf = f._source_tar_file
                out["members"] = []
                for r in tf._index["files"]:
                    data = open(path, "rb").read()[r["d"]:r["d"] + r["s"]]
                    out["members"].append(dict(n=r["n"], o=r["o"], d=r["d"], s=r["s"], sha256=sha(data), short=len(data) != r["s"]))
                    if not out["members"][-1]["short"]:
                        del out["members"][-1]["short"]
                live = {(r["n"], r["o"]) for r in tf._index["files"]}
                out["unindexed"] = [r["n"] for r in rows if (r["n"], r["o"]) not in live and not r["trash"]]
            rfs = st.rfs
            out["rfs_top"] = {k: v for k, v in rfs.items() if k != "refs"}
            keys, groups, arrays, links = {}, {}, {}, {}
            for k in sorted(rfs["refs"]):
                v = rfs["refs"][k]
                rec = {}
                if isinstance(v, dict):
                    rec["kind"], rec["json"] = "json", canon(v)
                elif isinstance(v, list):
                    rec["kind"], rec["ref"] = "ref", v
                else:
                    rec["kind"] = "base64" if v.startswith("base64:") else "text"
                if not isinstance(v, dict):
                    try:
                        with quiet():
                            raw = st._get_helper(k)
                            val = st[k]
                        rec["size"], rec["sha256"] = len(val), sha(val)
                        if val != raw:
                            rec["stored_size"], rec["stored_sha256"] = len(raw), sha(raw)   # before zero padding
                    except Exception as e:
                        rec["read_error"] = f"{type(e).__name__}: {e}"[:300]
                keys[k] = rec
            out["rfs"] = keys
            def meta(k):
                v = rfs["refs"].get(k)
                return None if v is None else v if isinstance(v, dict) else json.loads(st[k])
            for k in sorted(rfs["refs"]):
                parent, _, last = k.rpartition("/")
                if last == ".zgroup":
                    za = meta((parent + "/" if parent else "") + ".zattrs") or {}
                    if "_SOFT_LINK" in za:
                        links[parent] = dict(target=za["_SOFT_LINK"]["path"])
                        try:
                            t = f[parent]
                            links[parent]["resolves_to"] = t.name
                        except Exception as e:
                            links[parent]["read_error"] = f"{type(e).__name__}: {e}"[:200]
                    else:
                        groups[parent] = canon(za)
                elif last == ".zarray":
                    za = meta(parent + "/.zattrs") or {}
                    arrays[parent] = array_record(f, parent, meta(k), za)
                    attrs = {a: b for a, b in za.items() if a not in ("_SCALAR", "_COMPOUND_DTYPE", "_EXTERNAL_ARRAY_LINK")}
                    if attrs:
                        arrays[parent]["attrs"] = canon(attrs)
            out["groups"], out["arrays"], out["soft_links"] = groups, arrays, links
        with quiet():
            f.close()
        return out
    finally:
        os.chdir(cwd)


# ---------------------------------------------------------------- check
def structural(path, errs):
    """Rules that hold for every healthy .lindi.tar."""
    from lindi.tar.lindi_tar import LindiTarFile
    raw = open(path, "rb").read()
    try:
        tf = LindiTarFile(path)
    except Exception as e:
        errs.append(f"LindiTarFile cannot open it: {type(e).__name__}: {e}")
        return
    idx = tf._index["files"]
    try:
        members = tarfile.open(path, "r:").getmembers()
    except Exception as e:
        errs.append(f"python tarfile cannot read it: {type(e).__name__}: {e}")
        tf.close(); return
    by_off = {m.offset: m for m in members}
    if not members or members[0].name != ".tar_entry.json" or members[0].size != 1024:
        errs.append("first tar member is not a 1024-byte .tar_entry.json")
    names = [r["n"] for r in idx]
    for n in SPECIAL:
        if n not in names:
            errs.append(f"{n} is missing from the index")
    for r in idx:
        m = by_off.get(r["o"])
        if m is None:
            errs.append(f"index row {r['n']!r}: tarfile sees no header at offset {r['o']}")
            continue
        if (m.name, m.offset_data, m.size, m.type) != (r["n"], r["d"], r["s"], tarfile.REGTYPE):
            errs.append(f"index row {r} but tarfile has name={m.name!r} d={m.offset_data} s={m.size} type={m.type!r}")
    live = {r["o"] for r in idx}
    for m in members:
        if m.offset not in live and not m.name.startswith(".trash/"):
            errs.append(f"tar member {m.name!r} at {m.offset} is neither indexed nor under .trash/")
    if members:
        last = max(members, key=lambda m: m.offset)
        end = last.offset_data + (last.size + 511) // 512 * 512
        if raw[end:end + 1024] != b"\0" * 1024:
            errs.append(f"no 1024-byte zero terminator at {end}")
        if len(raw) != end + 1024:
            errs.append(f"{len(raw) - end - 1024} bytes follow the terminator: the reference appends at size-1024, which plain tar would not see")
    rows, notes = scan_headers(path)
    if [(r["n"], r["o"], r["s"]) for r in rows] != [(m.name, m.offset, m.size) for m in members]:
        errs.append("own header scan and python tarfile disagree on the member list")
    for n in SPECIAL:
        if n in names:
            try:
                json.loads(tf.read_file(n))
            except Exception as e:
                errs.append(f"{n} is not JSON: {e}")
    tf.close()


def compare(exp, got, errs, exact, drop_orphans, superset=False):
    if exp.get("reference_opens") is False:
        if got.get("reference_opens"):
            errs.append("expected the reference to refuse this archive, but it opens")
        elif exp.get("reference_error", "").split(":")[0] != got["reference_error"].split(":")[0]:
            errs.append(f"expected {exp.get('reference_error')!r}, got {got['reference_error']!r}")
        return
    if not got.get("reference_opens"):
        errs.append(f"the reference cannot open it: {got['reference_error']}")
        return
    if exact and "file" in exp and exp["file"] != got.get("file"):
        errs.append(f"file: expected {exp['file']}, got {got.get('file')}")
    if "members" in exp and "members" in got and not (drop_orphans and not exact):
        e = {r["n"]: r for r in exp["members"]}
        g = {r["n"]: r for r in got["members"]}
        for n in e:
            if n in SPECIAL and not exact:
                continue
            if n not in g:
                errs.append(f"member {n!r} is missing"); continue
            for k in (("o", "d", "s", "sha256") if exact else ("s", "sha256")):
                if e[n][k] != g[n][k]:
                    errs.append(f"member {n!r}: {k} expected {e[n][k]}, got {g[n][k]}")
        for n in g:
            if n not in e and not superset:
                errs.append(f"member {n!r} was not expected")
    if "files" in exp and exp["files"] != got.get("files"):
        errs.append("directory listing differs")
    if "rfs_top" in exp and exact and exp["rfs_top"] != got["rfs_top"]:
        errs.append(f"lindi.json top level: expected {exp['rfs_top']}, got {got['rfs_top']}")
    for sec in ("rfs", "groups", "arrays", "soft_links"):
        if sec not in exp:
            continue
        e, g = exp[sec], got[sec]
        for k in e:
            if k not in g:
                errs.append(f"{sec}: {k!r} is missing"); continue
            a, b = dict(e[k]), dict(g[k])
            if sec == "rfs" and not exact:
                for x in (a, b):
                    x.pop("ref", None)
                    if x.get("kind") in ("text", "base64", "ref"):
                        x.pop("kind")          # inline or not is the writer's choice; bytes are not
                    if drop_orphans: x.pop("stored_size", None); x.pop("stored_sha256", None)
                    if "read_error" in x:
                        x["read_error"] = x["read_error"].split(":")[0]
            if sec == "arrays":
                for x in (a, b):
                    if "read_error" in x:
                        x["read_error"] = x["read_error"].split(":")[0]
            if sec == "soft_links":
                for x in (a, b):
                    x.pop("read_error", None)
            if a != b:
                diff = {q: (a.get(q), b.get(q)) for q in set(a) | set(b) if a.get(q) != b.get(q)}
                errs.append(f"{sec} {k!r}: (expected, got) {diff}")
        for k in g:
            if k not in e and not superset:
                errs.append(f"{sec}: {k!r} was not expected")


def cmd_check(a):
    exp = json.load(open(a.expect))
    errs = []
    base = a.base or os.path.dirname(os.path.abspath(a.archive))
    got = describe(a.archive, base=base, url_map=exp.get("url_map"))
    compare(exp, got, errs, a.exact, a.allow_dropped_orphans, a.superset)
    if got["kind"] == "lindi.tar" and exp.get("structural", True) and exp.get("reference_opens", True):
        structural(a.archive, errs)
    if errs:
        print(f"FAIL {a.archive}: {len(errs)} difference(s)", file=sys.stderr)
        for e in errs[:40]:
            print("  - " + str(e)[:600], file=sys.stderr)
        return 1
    print(f"OK {a.archive}: {len(got.get('members', got.get('files', [])))} members, {len(got.get('rfs', {}))} rfs keys, {len(got.get('arrays', {}))} arrays equal")
    return 0


# ---------------------------------------------------------------- append
def cmd_append(a):
    import lindi, numpy as np, random, h5py
    rng = np.random.default_rng(a.seed)
    random.seed(a.seed)
    g = f"holdall_append_{a.seed}"
    um = json.load(open(a.expect)).get("url_map") if a.expect else None
    before = describe(a.archive, base=a.base, url_map=um)
    if not before["reference_opens"]:
        print(f"FAIL {a.archive}: the reference cannot open it: {before['reference_error']}", file=sys.stderr)
        return 1
    want = {}
    try:
        f = lindi.LindiH5pyFile.from_lindi_file(a.archive, mode="r+")
        grp = f.create_group(g)
        grp.attrs["note"] = "added by the reference"
        grp.attrs["numbers"] = [1, 2, 3]
        want["raw"] = rng.integers(0, 256, 12000).astype("u1")
        grp.create_dataset("raw", data=want["raw"], compression=None)
        f.flush()
        want["packed"] = rng.random((60, 50))
        grp.create_dataset("packed", data=want["packed"])
        want["tiny"] = rng.integers(-5, 5, 7).astype("<i2")
        grp.create_dataset("tiny", data=want["tiny"])
        grp.create_dataset("words", data=np.array(["alpha", "beta", "gämma"], dtype=object))
        grp["link_to_raw"] = h5py.SoftLink(f"/{g}/raw")
        for i in range(a.blobs):
            want[f"m{i:05d}"] = rng.integers(0, 256, 1000).astype("u1")
            grp.create_dataset(f"m{i:05d}", data=want[f"m{i:05d}"], compression=None)
            if i % 50 == 49:
                f.flush()
        if a.grow_json:
            grp.attrs["padding"] = "p" * a.grow_json
        f.flush()
        f.close()
    except Exception as e:
        print(f"FAIL {a.archive}: the reference could not append: {type(e).__name__}: {e}", file=sys.stderr)
        return 1
    errs = []
    got = describe(a.archive, base=a.base, url_map=um)
    for k, v in want.items():
        r = got.get("arrays", {}).get(f"{g}/{k}", {})
        if r.get("data_sha256") != sha(np.ascontiguousarray(v).tobytes()):
            errs.append(f"{g}/{k}: read back differs: {r}")
    for k, r in before["arrays"].items():
        if "read_error" not in r and got["arrays"].get(k, {}).get("data_sha256") != r.get("data_sha256"):
            errs.append(f"{k}: changed by the append")
    structural(a.archive, errs) if got["kind"] == "lindi.tar" else None
    if a.out:
        json.dump(got, open(a.out, "w"), indent=1, sort_keys=True)
    if errs:
        print(f"FAIL {a.archive}: {len(errs)} problem(s) after append", file=sys.stderr)
        for e in errs[:40]:
            print("  - " + e[:400], file=sys.stderr)
        return 1
    print(f"OK {a.archive}: reference appended group /{g} ({len(want)} arrays)")
    return 0


# ---------------------------------------------------------------- export
def cmd_export(a):
    import lindi
    fast_retries()
    path = os.path.abspath(a.archive)
    base = os.path.abspath(a.base or os.path.dirname(path))
    out = os.path.abspath(a.dir)
    um = json.load(open(a.expect)).get("url_map") if a.expect else None
    cwd, n, left_out = os.getcwd(), 0, 0
    os.chdir(base)              # as in describe
    try:
        with quiet():
            f = lindi.LindiH5pyFile.from_lindi_file(path)
        with UrlMap(um, base):
            st = f._zarr_store
            st = getattr(st, "_base_store", st)
            for k in sorted(st.rfs["refs"]):
                to = os.path.normpath(os.path.join(out, k))
                if os.path.commonpath([to, out]) != out:
                    print(f"FAIL {a.archive}: key {k!r} leads out of the folder", file=sys.stderr)
                    return 1
                try:
                    with quiet():
                        val = st[k]
                except Exception:
                    left_out += 1
                    continue
                os.makedirs(os.path.dirname(to), exist_ok=True)
                with open(to, "wb") as g:
                    g.write(val)
                n += 1
        with quiet():
            f.close()
    finally:
        os.chdir(cwd)
    print(f"OK {a.archive}: {n} keys exported, {left_out} left out")
    return 0


# ---------------------------------------------------------------- batch
def cmd_batch():
    # What a library prints, be it in C, must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        cwd = os.getcwd()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run(json.loads(line))
            except SystemExit as e:             # how argparse says that it does not understand
                code = e.code if isinstance(e.code, int) else 2
            except Exception:
                traceback.print_exc(file=err)
                code = 2
        os.chdir(cwd)
        # ASCII, so that lone surrogates in names survive
        answers.write(json.dumps(dict(code=code or 0, stdout=out.getvalue(), stderr=err.getvalue())) + "\n")
        answers.flush()
    return 0


def main():
    if sys.argv[1:] == ["batch"]:
        return cmd_batch()
    return run(sys.argv[1:])


def run(argv):
    if argv and argv[0] not in ("check", "append", "describe", "export", "scan", "-h", "--help"):
        argv = ["check"] + argv
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sp = p.add_subparsers(dest="mode", required=True)
    c = sp.add_parser("check"); c.add_argument("archive"); c.add_argument("expect")
    c.add_argument("--exact", action="store_true"); c.add_argument("--allow-dropped-orphans", action="store_true"); c.add_argument("--superset", action="store_true"); c.add_argument("--base")
    c = sp.add_parser("append"); c.add_argument("archive"); c.add_argument("--seed", type=int, default=1)
    c.add_argument("--blobs", type=int, default=0); c.add_argument("--grow-json", type=int, default=0); c.add_argument("--out"); c.add_argument("--base"); c.add_argument("--expect", help="take url_map from this expect.json")
    c = sp.add_parser("describe"); c.add_argument("archive"); c.add_argument("--out"); c.add_argument("--base")
    c = sp.add_parser("export"); c.add_argument("archive"); c.add_argument("dir"); c.add_argument("--base"); c.add_argument("--expect", help="take url_map from this expect.json")
    c = sp.add_parser("scan"); c.add_argument("archive")
    a = p.parse_args(argv)
    try:
        if a.mode == "check":
            return cmd_check(a)
        if a.mode == "append":
            return cmd_append(a)
        if a.mode == "export":
            return cmd_export(a)
        if a.mode == "scan":
            rows, notes = scan_headers(a.archive)
            print(json.dumps(dict(rows=rows, notes=notes), indent=1)); return 0
        d = describe(a.archive, base=a.base)
        s = json.dumps(d, indent=1, sort_keys=True)
        open(a.out, "w").write(s) if a.out else print(s)
        return 0
    except FileNotFoundError as e:
        print(f"cannot run: {e}", file=sys.stderr); return 2


if __name__ == "__main__":
    sys.exit(main())

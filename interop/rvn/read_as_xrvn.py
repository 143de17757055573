"""Reads an RVN archive by the rules of the reference's reader, with libzstd.

    read_as_xrvn.py ARCHIVE

It prints a JSON object: what the header says, the metadata, and a line for each
record with what the reference would extract. It is as unforgiving as the
reference and follows the same paths: blocks of up to 256 KiB are decoded by one
call, the index too if its compressed length is no more; longer contents are
streamed, and end for good where the first frame ends.
"""

import json
import os
import struct
import sys

import blake3
import zstandard

SINGLE_CALL = 262144
STACK_INDEX = 4_160_000
HEADER = struct.Struct("<3sBHHIIIIIIIIQIIII")
RECORD = struct.Struct("<32sQIBBBBIHHHHB3s")
KINDS = ["dir", "file", "symlink", "hardlink", "fifo"]


def one_call(data, size):
    """ZSTD_decompress: any number of frames, skippable ones too."""
    out = bytearray()
    while data:
        (magic,) = struct.unpack_from("<I", data)
        if magic & ~15 == 0x184D2A50:
            data = data[8 + struct.unpack_from("<I", data, 4)[0] :]
            continue
        d = zstandard.ZstdDecompressor().decompressobj()
        out += d.decompress(data)
        if not d.eof:
            raise ValueError("a frame does not end")
        data = d.unused_data
    if len(out) != size:
        raise ValueError(f"expected {size} bytes, found {len(out)}")
    return bytes(out)


def streamed(data):
    """ZSTD_decompressStream: stops at the end of the first frame."""
    d = zstandard.ZstdDecompressor().decompressobj()
    while data and not d.eof:
        yield d.decompress(data[:SINGLE_CALL])
        data = data[SINGLE_CALL:]
    if not d.eof:
        raise ValueError("the frame does not end")


def main():
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    (magic, version, groups, owners, link_blocks, files, meta_comp, index_comp, arc_comp, name_blocks, meta_flat, index_flat, arc_flat, *unused) = HEADER.unpack_from(data)
    assert magic == b"\xc8\x64\x32" and version == 3 and unused == [0, 0, 0, 0], "header"
    at = 64
    meta = one_call(data[at : at + meta_comp], meta_flat) if meta_comp else b""
    assert meta_flat <= 524288, "metadata is too long"
    at += meta_comp
    block = data[at : at + index_comp]
    at += index_comp
    expected = 32 * (groups + owners + link_blocks + name_blocks) + 64 * files
    assert index_flat == expected, "index size"
    if index_comp <= SINGLE_CALL:
        assert index_flat <= STACK_INDEX, "the index does not fit the stack"
        index = one_call(block, index_flat) if index_comp else b""
    else:
        index = b"".join(streamed(block))[:expected]
    assert len(index) == expected, "index"

    def people(n):
        nonlocal index
        names = [index[32 * i : 32 * i + 32].rstrip(b"\0").decode() for i in range(n)]
        index = index[32 * n :]
        return names

    group_names, owner_names = people(groups), people(owners)
    links, records, names = index[: 32 * link_blocks], index[32 * link_blocks :][: 64 * files], index[32 * link_blocks + 64 * files :]
    contents = data[at : at + arc_comp]
    if arc_flat > SINGLE_CALL:
        content = b"".join(streamed(data[at:]))
    else:
        content = one_call(contents, arc_flat) if arc_flat else b""
    assert len(content) >= arc_flat, "content"

    dirs, out, off, regular = [b""], [], 0, set()
    for i in range(files):
        (digest, seconds, nanos, owner, group, kind, mul, low, mode, link_len, parent, dir_id, name_len, _) = RECORD.unpack_from(records, 64 * i)
        name, names = names[:name_len], names[name_len:]
        link, links = links[:link_len], links[link_len:]
        assert name and b"/" not in name and b"\0" not in name and kind < 5, f"record {i}"
        assert nanos < 10**9 and seconds < 2**63 and low < 2**31 and mode <= 0o7777, f"record {i}"
        above = dirs[parent]  # a directory precedes what is in it
        path = above + b"/" + name if above else name
        if kind == 0:
            assert dir_id == len(dirs), f"directory {i} has number {dir_id}"
            dirs.append(path)
        else:
            assert dir_id == 0, f"record {i}"
        size = mul << 32 | low
        e = {"path": path.decode(errors="surrogateescape"), "kind": KINDS[kind], "mode": mode, "owner": owner_names[owner], "group": group_names[group], "seconds": seconds, "nanos": nanos, "size": size, "link": link.decode(errors="surrogateescape")}
        if kind == 1:
            body = content[off : off + size]
            off += size
            assert len(body) == size, f"record {i}: content"
            e["digest"] = blake3.blake3(body).hexdigest()
            assert e["digest"] == digest.hex(), f"record {i}: digest"
            regular.add(path)
        elif kind == 3:
            assert link in regular, f"record {i}: hard link to {link!r}"
            e["digest"] = digest.hex()
        else:
            assert digest == bytes(32) and size == 0, f"record {i}"
        out.append(e)
    assert off == arc_flat, "sizes"
    assert not names.strip(b"\0") and len(names) < 32 and not links.strip(b"\0") and len(links) < 32, "padding"
    json.dump({"metadata": meta.decode(), "records": out}, sys.stdout)


if __name__ == "__main__":
    main()

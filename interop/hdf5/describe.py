#!/usr/bin/env python3
"""Say all that h5py sees in HDF5 files, as lines of JSON: describe.py FILE...

The first line of a file is {"file", "size", "userblock", "superblock"}. Then each object has a
line, once, under the first of its paths; the root comes first, then what is in it, level by level,
by the bytes of the names. An object is told by its address, as hard links and references have it:
from the beginning of what follows the user block. A name or path that is no UTF-8 has its bytes in
"name_hex" or "path_hex".

Of every object:
  path, address, kind     "group", "dataset" or "type" (committed); "error": h5py cannot open it
  links_to                how many hard links there are
  attributes              by the bytes of their names: {"name", "type", "space", "sha256", "value"}
  attributes_order        their names in the order of their making, if the file has it
Of a group:
  links                   by the bytes of their names: {"name", "kind": "hard", "address"},
                          {"kind": "soft", "path"}, {"kind": "external", "file", "path"}
  links_order
Of a data set:
  type, space, sha256, first (elements, at most 16 of them)
  layout                  "compact", "contiguous", "chunked" or "virtual"
  chunks                  the shape of one
  filters                 {"id", "flags", "values", "name"}
  fill                    {"defined": "undefined", "default" or "user", "time", "sha256", "value"}
  allocated, stored       when room is taken: "early", "late", "incremental"; how many bytes are
  offset                  of contiguous data, from the beginning of the file; null if there is none
  pieces                  of chunked data, by their place: [first element, offset, bytes, filter mask]
  external, sources       [file, offset, bytes]; of virtual data [file, path]
Of a committed type: type.

What h5py cannot read has "error" in the place of "sha256".

A space is {"class": "null"}, {"class": "scalar"} or {"class": "simple", "dims", "max"}, where null is
unlimited.

A type is the one in the file:
  {"class": "integer", "bitfield" or "time", "size", "order", "precision", "offset", "signed" (of integers)}
  {"class": "float", "size", "order", "precision", "offset", "fields": [sign's bit, exponent's bit and
      width, mantissa's bit and width], "bias", "norm"}
  {"class": "string", "size" (null: variable), "charset": "ascii" or "utf-8", "pad"}
  {"class": "opaque", "size", "tag"}
  {"class": "enum", "base", "members": [[name, value]...]}
  {"class": "compound", "size", "members": [[name, offset, type]...]}; size and offsets are null where members have
      a variable length or are regions: h5py tells those in memory
  {"class": "array", "dims", "base"}           {"class": "sequence", "base"}: of variable length
  {"class": "complex", "base"}                 {"class": "reference", "to": "object" or "region"}
A committed type has "committed": its address.

"sha256" is of all elements in C order, each of them written so:
  integer, bitfield,   the bits that count, which are `precision` from `offset` on, as a little-endian
  float, time          number of as few bytes as hold them
  enum                 as its base
  string of a size     its bytes, padding and all
  string, variable     how many bytes as a little-endian number of 4 bytes, then the bytes
  opaque               its bytes
  compound             its members, one after the other
  array                its elements in C order
  complex              the real part, then the imaginary one
  sequence             how many elements as a number of 4 bytes, then the elements
  object               the address as a number of 8 bytes; 0 if it leads nowhere
  region               the address of the data set; how many dimensions, blocks and points, as numbers of 4 bytes;
                       then the first and the last corner of each block, and each point, by their coordinates, as
                       numbers of 8 bytes, blocks and points in ascending order. Only the 0 of the address if it leads nowhere.

"value" and "first" are for people, and for comparing by hand: numbers, with "NaN", "Infinity" and
"-Infinity" as strings; text; {"hex"} of what is none; lists of members and elements; a complex number
as [real, imaginary]; {"object"} and {"region"} with addresses, null if they lead nowhere. Long doubles
are rounded. Values of more than 1000 elements are left out.
"""

import hashlib
import itertools
import json
import math
import os
import struct
import sys

import h5py
import hdf5plugin  # noqa: F401: decodes
import numpy as np
from h5py import h5, h5a, h5d, h5f, h5g, h5o, h5p, h5r, h5s, h5t

MOST_VALUES, FIRST = 1000, 16
UNLIMITED = h5s.UNLIMITED, 2**32 - 1  # which the library makes of it in files of short lengths
ORDERS = {h5t.ORDER_LE: "le", h5t.ORDER_BE: "be"}
PADS = {h5t.STR_NULLTERM: "null", h5t.STR_NULLPAD: "zeros", h5t.STR_SPACEPAD: "spaces"}
ALLOCATED = {h5d.ALLOC_TIME_EARLY: "early", h5d.ALLOC_TIME_LATE: "late", h5d.ALLOC_TIME_INCR: "incremental"}
FILLED = {h5d.FILL_TIME_ALLOC: "alloc", h5d.FILL_TIME_NEVER: "never", h5d.FILL_TIME_IFSET: "ifset"}
DEFINED = {h5d.FILL_VALUE_UNDEFINED: "undefined", h5d.FILL_VALUE_DEFAULT: "default", h5d.FILL_VALUE_USER_DEFINED: "user"}
LAYOUTS = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked", h5d.VIRTUAL: "virtual"}


def named(key, name):
    """A name that may be no UTF-8, as members of an object."""
    try:
        return {key: name.decode()}
    except UnicodeDecodeError:
        return {key: name.decode("utf-8", "replace"), key + "_hex": name.hex()}


def text(name):
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def plain(b):
    """Text, or the bytes of what is none."""
    try:
        return bytes(b).decode()
    except UnicodeDecodeError:
        return {"hex": bytes(b).hex()}


def number(x):
    if math.isnan(x):
        return "NaN"
    return float(x) if math.isfinite(x) else "Infinity" if x > 0 else "-Infinity"


# Types. A kind of element knows how it is described, and how one is written and shown. What lies
# in memory as it does in the file is handed to it as bytes; what leads to a heap, as h5py gives it.


class Kind:
    heap = False  # whether h5py has to follow something to read it
    longer = False  # whether it has another size in memory than in the file

    def __init__(self, t):
        self.t, self.size = t, t.get_size()
        self.said = self.describe()
        if t.committed():
            self.said["committed"] = h5o.get_info(t).addr


class Number(Kind):
    def describe(self):
        self.heading = type(self).__name__.lower()
        t, size = self.t, self.size
        if isinstance(t, (h5t.TypeBitfieldID, h5t.TypeTimeID)):  # of which h5py tells nothing: by the message
            message = t.encode()[2:]
            self.order = "be" if message[1] & 1 else "le"
            self.low, self.precision = struct.unpack("<HH", message[8:12]) if self.heading == "bitfield" else (0, 8 * size)
        else:
            self.order, self.precision, self.low = ORDERS[t.get_order()], t.get_precision(), t.get_offset()
        return {"class": self.heading, "size": size, "order": self.order, "precision": self.precision, "offset": self.low}

    def bits(self, b):
        return int.from_bytes(b, "big" if self.order == "be" else "little") >> self.low & (1 << self.precision) - 1

    def write(self, b):
        return self.bits(b).to_bytes(-(-self.precision // 8), "little")

    def show(self, b):
        return self.bits(b)


class Integer(Number):
    def describe(self):
        self.signed = self.t.get_sign() == h5t.SGN_2
        return super().describe() | {"signed": self.signed}

    def show(self, b):
        n = self.bits(b)
        return n - (1 << self.precision) if self.signed and n >> self.precision - 1 else n


class Bitfield(Number):
    pass


class Time(Number):
    pass


class Float(Number):
    def describe(self):
        t = self.t
        self.sign, self.epos, self.esize, self.mpos, self.msize = t.get_fields()
        self.bias, self.implied = t.get_ebias(), t.get_norm() == h5t.NORM_IMPLIED
        norm = {h5t.NORM_IMPLIED: "implied", h5t.NORM_MSBSET: "set", h5t.NORM_NONE: "none"}[t.get_norm()]
        return super().describe() | {"fields": list(t.get_fields()), "bias": self.bias, "norm": norm}

    def show(self, b):
        n = self.bits(b) << self.low
        exponent, mantissa = n >> self.epos & (1 << self.esize) - 1, n >> self.mpos & (1 << self.msize) - 1
        sign = -1.0 if n >> self.sign & 1 else 1.0
        fraction = mantissa if self.implied else mantissa & (1 << self.msize - 1) - 1
        if exponent == (1 << self.esize) - 1:
            return "NaN" if fraction else number(sign * math.inf)
        if self.implied and exponent:
            mantissa |= 1 << self.msize
        try:
            return number(sign * math.ldexp(mantissa, max(exponent, 1) - self.bias - self.msize + (not self.implied)))
        except OverflowError:
            return number(sign * math.inf)


class String(Kind):
    def describe(self):
        self.heap = self.longer = self.t.is_variable_str()
        charset = "utf-8" if self.t.get_cset() == h5t.CSET_UTF8 else "ascii"
        return {"class": "string", "size": None if self.heap else self.size, "charset": charset, "pad": PADS[self.t.get_strpad()]}

    def write(self, b):
        b = self.bytes(b)
        return len(b).to_bytes(4, "little") + b if self.heap else b

    def show(self, b):
        return plain(self.bytes(b))

    def bytes(self, b):
        if isinstance(b, str):
            return b.encode("utf-8", "surrogateescape")
        return bytes(b) if self.heap else bytes(b).ljust(self.size, b"\0")


class Opaque(Kind):
    def describe(self):
        return {"class": "opaque", "size": self.size, "tag": text(self.t.get_tag())}

    def write(self, b):
        return bytes(b)

    def show(self, b):
        return {"hex": bytes(b).hex()}


class Enum(Kind):
    def describe(self):
        self.base = kind_of(self.t.get_super())
        names = [self.t.get_member_name(i) for i in range(self.t.get_nmembers())]
        return {"class": "enum", "base": self.base.said, "members": [[text(n), self.t.get_member_value(i)] for i, n in enumerate(names)]}

    def write(self, b):
        return self.base.write(b)

    def show(self, b):
        return self.base.show(b)


class Compound(Kind):
    def describe(self):
        t = self.t
        self.members = [(t.get_member_name(i), t.get_member_offset(i), kind_of(t.get_member_type(i))) for i in range(t.get_nmembers())]
        self.heap = any(k.heap for _, _, k in self.members)
        self.longer = any(k.longer for _, _, k in self.members)
        in_file = lambda n: None if self.longer else n
        return {"class": "compound", "size": in_file(self.size), "members": [[text(n), in_file(at), k.said] for n, at, k in self.members]}

    def parts(self, v):
        if self.heap:  # a numpy scalar, whose members are in the same order
            return [(k, raw_of(k, v[i])) for i, (_, _, k) in enumerate(self.members)]
        return [(k, v[at : at + k.size]) for _, at, k in self.members]

    def write(self, v):
        return b"".join(k.write(part) for k, part in self.parts(v))

    def show(self, v):
        return [k.show(part) for k, part in self.parts(v)]


class Array(Kind):
    def describe(self):
        self.dims, self.base = self.t.get_array_dims(), kind_of(self.t.get_super())
        self.heap, self.longer = self.base.heap, self.base.longer
        return {"class": "array", "dims": list(self.dims), "base": self.base.said}

    def parts(self, v):
        if self.heap:
            return [raw_of(self.base, x) for x in np.asarray(v).ravel()]
        n = self.base.size
        return [v[at : at + n] for at in range(0, self.size, n)]

    def write(self, v):
        return b"".join(map(self.base.write, self.parts(v)))

    def show(self, v):
        return [self.base.show(part) for part in self.parts(v)]


class Sequence(Kind):
    heap = longer = True

    def describe(self):
        self.base = kind_of(self.t.get_super())
        return {"class": "sequence", "base": self.base.said}

    def parts(self, v):
        return [] if v is None or isinstance(v, (int, float)) else [raw_of(self.base, x) for x in v]

    def write(self, v):
        parts = self.parts(v)
        return len(parts).to_bytes(4, "little") + b"".join(map(self.base.write, parts))

    def show(self, v):
        return [self.base.show(part) for part in self.parts(v)]


class Complex(Kind):
    def describe(self):
        self.base = kind_of(self.t.get_super())
        return {"class": "complex", "base": self.base.said}

    def parts(self, b):
        return b[: self.base.size], b[self.base.size :]

    def write(self, b):
        return b"".join(map(self.base.write, self.parts(b)))

    def show(self, b):
        return [self.base.show(part) for part in self.parts(b)]


class Reference(Kind):
    heap = True
    here = None  # the file in which they are looked up

    def describe(self):
        self.region = self.longer = self.t.equal(h5t.STD_REF_DSETREG)
        return {"class": "reference", "to": "region" if self.region else "object"}

    def target(self, ref):
        return h5o.get_info(h5r.dereference(ref, Reference.here.id)).addr if ref else 0

    def corners(self, ref):
        """How many dimensions, and the blocks and the points of a region."""
        space = h5r.get_region(ref, Reference.here.id)
        kind, rank = space.get_select_type(), space.get_simple_extent_ndims()
        if kind == h5s.SEL_HYPERSLABS:
            return rank, sorted(space.get_select_hyper_blocklist().reshape(-1, 2 * rank).tolist()), []
        if kind == h5s.SEL_POINTS:
            return rank, [], sorted(space.get_select_elem_pointlist().tolist())
        return rank, [[0] * rank + [n - 1 for n in space.get_simple_extent_dims()]] if kind == h5s.SEL_ALL else [], []

    def write(self, ref):
        b = self.target(ref).to_bytes(8, "little")
        if not self.region or not ref:
            return b
        rank, blocks, points = self.corners(ref)
        b += b"".join(n.to_bytes(4, "little") for n in (rank, len(blocks), len(points)))
        return b + b"".join(n.to_bytes(8, "little") for at in blocks + points for n in at)

    def show(self, ref):
        if not ref:
            return None
        if not self.region:
            return {"object": self.target(ref)}
        _, blocks, points = self.corners(ref)
        return {"region": self.target(ref), "blocks": blocks, "points": points}


KINDS = {
    h5t.INTEGER: Integer,
    h5t.FLOAT: Float,
    h5t.STRING: String,
    h5t.BITFIELD: Bitfield,
    h5t.OPAQUE: Opaque,
    h5t.COMPOUND: Compound,
    h5t.REFERENCE: Reference,
    h5t.ENUM: Enum,
    h5t.VLEN: Sequence,
    h5t.ARRAY: Array,
    h5t.TIME: Time,
    h5t.COMPLEX: Complex,
}


def kind_of(t):
    return KINDS[t.get_class()](t)


def raw_of(kind, v):
    """What kind.write takes, of what h5py made of an element: its bytes, if it leads nowhere."""
    if kind.heap:
        return v
    if isinstance(kind, Enum) and isinstance(v, (bool, np.bool_)):
        v = np.int8(v)
    v = np.asarray(v)
    b = v.tobytes()
    if isinstance(kind, String):
        return b.ljust(kind.size, b"\0")
    if len(b) != kind.size:
        raise ValueError(f"h5py makes {len(b)} bytes of an element of {kind.size}")
    return b


def elements(kind, read, dtype, count):
    """All elements, as kind.write takes them."""
    if not kind.heap:
        raw = np.zeros(count, f"V{kind.size}")
        if count:
            read(raw, kind.t)
        raw = raw.tobytes()
        return [raw[at : at + kind.size] for at in range(0, len(raw), kind.size)]
    dtype = dtype()
    base, more = dtype.subdtype or (dtype, ())
    got = np.zeros((count, *more), base)
    if count:
        read(got, h5t.py_create(dtype))
    return [got[i] for i in range(count)]


def written(kind, values):
    """What the digest is of. Numbers, and what consists of them, are written all at once."""
    if type(kind) in (Integer, Float, Bitfield) and kind.precision == 8 * kind.size:
        raw = np.frombuffer(b"".join(values), "u1").reshape(-1, kind.size)
        return (raw[:, ::-1] if kind.order == "be" else raw).tobytes()
    return b"".join(map(kind.write, values))


def contents(kind, read, dtype, count, shown):
    """The digest of all elements, and some of them."""
    try:
        values = elements(kind, read, dtype, count)
        some = [kind.show(v) for v in values[:shown]]
        return hashlib.sha256(written(kind, values)).hexdigest(), some
    except Exception as err:  # h5py has many
        return None, f"{type(err).__name__}: {err}"


def space_of(space):
    kind = space.get_simple_extent_type()
    if kind == h5s.NULL:
        return {"class": "null"}, 0
    if kind == h5s.SCALAR:
        return {"class": "scalar"}, 1
    dims = list(space.get_simple_extent_dims())
    most = [None if n in UNLIMITED else n for n in space.get_simple_extent_dims(True)]
    return {"class": "simple", "dims": dims, "max": most}, math.prod(dims)


# Objects


def attribute(obj, name):
    a = h5a.open(obj, name)
    kind = kind_of(a.get_type())
    space, count = space_of(a.get_space())
    line = named("name", name) | {"type": kind.said, "space": space}
    digest, values = contents(kind, lambda to, t: a.read(to, mtype=t), lambda: a.dtype, count, count)
    if digest is None:
        return line | {"error": values}
    line["sha256"] = digest
    if count <= MOST_VALUES and space["class"] != "null":
        line["value"] = values[0] if space["class"] == "scalar" else values
    return line


def attributes(obj, creation):
    names = []
    h5a.iterate(obj, lambda name, *_: names.append(name))
    order = []
    if creation & h5p.CRT_ORDER_TRACKED:
        h5a.iterate(obj, lambda name, *_: order.append(text(name)), index_type=h5.INDEX_CRT_ORDER)
    more = {"attributes_order": order} if order else {}
    return {"attributes": [attribute(obj, name) for name in sorted(names)]} | more


def link(group, name):
    info = group.links.get_info(name)
    line = named("name", name)
    if info.type == h5py.h5l.TYPE_HARD:
        return line | {"kind": "hard", "address": h5o.get_info(group, name).addr}
    if info.type == h5py.h5l.TYPE_SOFT:
        return line | {"kind": "soft"} | named("path", group.links.get_val(name))
    if info.type == h5py.h5l.TYPE_EXTERNAL:
        file, path = group.links.get_val(name)
        return line | {"kind": "external", "file": text(file)} | named("path", path)
    return line | {"kind": "user", "class": info.type}


def group_line(g):
    names = []
    g.links.iterate(lambda name, *_: names.append(name))
    how = g.get_create_plist()
    line = {"kind": "group"} | attributes(g, how.get_attr_creation_order())
    line["links"] = [link(g, name) for name in sorted(names)]
    if names and how.get_link_creation_order() & h5p.CRT_ORDER_TRACKED:
        order = []
        g.links.iterate(lambda name, *_: order.append(text(name)), idx_type=h5.INDEX_CRT_ORDER)
        line["links_order"] = order
    return line


def dataset_line(d):
    how, kind = d.get_create_plist(), kind_of(d.get_type())
    space, count = space_of(d.get_space())
    line = {"kind": "dataset"} | attributes(d, how.get_attr_creation_order())
    line |= {"type": kind.said, "space": space}
    # Elements that are not stored have no bytes; billions of them are not read.
    if count * kind.size > 1 << 30:
        digest, values = None, "not read: too long"
    else:
        digest, values = contents(kind, lambda to, t: d.read(h5s.ALL, h5s.ALL, reshaped(to, d), t), lambda: d.dtype, count, FIRST)
    line |= {"error": values} if digest is None else {"sha256": digest, "first": values}
    layout = LAYOUTS[how.get_layout()]
    line |= {"layout": layout, "allocated": ALLOCATED[how.get_alloc_time()], "stored": d.get_storage_size()}
    line["fill"] = fill(how, kind, d)
    if layout == "contiguous" and not how.get_external_count():
        offset = d.get_offset()  # the library adds the user block's length to an address that is undefined
        line["offset"] = None if offset == Reference.here.userblock_size - 1 else offset
    if how.get_external_count():
        line["external"] = [[text(f), at, n] for f, at, n in map(how.get_external, range(how.get_external_count()))]
    if layout == "virtual":
        parts = range(how.get_virtual_count())
        line["sources"] = [[how.get_virtual_filename(i), how.get_virtual_dsetname(i)] for i in parts]
    filters = [how.get_filter(i) for i in range(how.get_nfilters())]
    if filters:
        line["filters"] = [{"id": i, "flags": flags, "values": list(values), "name": text(name)} for i, flags, values, name in filters]
    if layout == "chunked":
        line["chunks"] = list(how.get_chunk())
        line["pieces"] = sorted(pieces(d, line["chunks"]))
    return line


def pieces(d, chunks):
    """Where the chunks of a data set lie."""
    found = []
    d.chunk_iter(lambda c: found.append([list(c.chunk_offset), c.byte_offset, c.size, c.filter_mask]))
    most = d.get_space().get_simple_extent_dims(True)
    if most.count(h5s.UNLIMITED) == 1 and most[0] != h5s.UNLIMITED and misplaced(d, found):
        # In an extensible array the unlimited dimension comes first. HDF5 2.0 looks chunks up so, but while it
        # goes through the array it tells places as if the dimensions were in their own order.
        free = most.index(h5s.UNLIMITED)
        for place, *_ in found:
            at = place[free] // chunks[free]
            for i in range(free + 1, len(most)):
                at = at * -(-most[i] // chunks[i]) + place[i] // chunks[i]
            for i in reversed(range(len(most))):
                if i != free:
                    at, n = divmod(at, -(-most[i] // chunks[i]))
                    place[i] = n * chunks[i]
            place[free] = at * chunks[free]
    return found


def misplaced(d, found):
    """Whether a chunk is not what HDF5 finds at the place that it tells."""
    with open(h5f.get_name(d), "rb") as raw:
        for place, offset, size, _ in found:
            raw.seek(offset)
            try:
                if d.read_direct_chunk(tuple(place))[1] != raw.read(size):
                    return True
            except (OSError, RuntimeError, ValueError):  # there is none, or no such place
                return True
    return False


def reshaped(to, d):
    """What elements are read into, with the dimensions of the data set, in front of those of the elements."""
    return to.reshape(d.shape + to.shape[1:]) if d.get_space().get_simple_extent_type() == h5s.SIMPLE else to.reshape(to.shape[1:])


def fill(how, kind, d):
    line = {"defined": DEFINED[how.fill_value_defined()], "time": FILLED[how.get_fill_time()]}
    if line["defined"] == "user" and not kind.heap:
        value = np.zeros((), f"V{kind.size}")
        try:
            fill_raw(how, kind, value, d)
            line |= {"sha256": hashlib.sha256(kind.write(value.tobytes())).hexdigest(), "value": kind.show(value.tobytes())}
        except Exception as err:
            line["error"] = f"{type(err).__name__}: {err}"
    return line


def fill_raw(how, kind, value, d):
    """The bytes of a fill value. h5py gives it in the type of what it is read into."""
    typed = np.zeros((), d.dtype if d.dtype.subdtype is None else d.dtype.base)
    how.get_fill_value(typed)
    b = typed.tobytes()
    if len(b) != kind.size:
        raise ValueError(f"h5py makes {len(b)} bytes of a fill value of {kind.size}")
    value[...] = np.frombuffer(b, value.dtype)[0]


def describe(path):
    folder, path = os.path.split(path)
    os.chdir(folder)  # h5py looks for external files from here
    with h5py.File(path, "r") as f:
        Reference.here = f
        with open(path, "rb") as raw:
            raw.seek(f.userblock_size)
            superblock = raw.read(9)[8]
        yield {"file": path, "size": os.path.getsize(path), "userblock": f.userblock_size, "superblock": superblock}
        seen, level = set(), [(b"/", f["/"].id)]
        while level:
            deeper = []
            for path_, obj in level:
                info = h5o.get_info(obj)
                if info.addr in seen:
                    continue
                seen.add(info.addr)
                line = named("path", path_) | {"address": info.addr, "links_to": info.rc}
                yield line | object_line(obj)
                if isinstance(obj, h5g.GroupID):
                    deeper += children(path_, obj)
            level = deeper


def object_line(obj):
    if isinstance(obj, h5g.GroupID):
        return group_line(obj)
    if isinstance(obj, h5d.DatasetID):
        return dataset_line(obj)
    return {"kind": "type"} | attributes(obj, 0) | {"type": kind_of(obj).said}


def children(path, group):
    """What hard links of a group lead to."""
    names = []
    group.links.iterate(lambda name, info: names.append(name) if info.type == h5py.h5l.TYPE_HARD else None, info=True)
    for name in sorted(names):
        yield (path.rstrip(b"/") + b"/" + name, h5o.open(group, name))


def main():
    for path in map(os.path.abspath, sys.argv[1:]):
        for line in describe(path):
            print(json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


if __name__ == "__main__":
    main()

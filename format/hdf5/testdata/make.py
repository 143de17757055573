#!/usr/bin/env python3
"""Make references.h5.gz, and references.json.gz: the references that lindi makes of it.

It also makes refused.h5, with references and texts for which lindi refuses a file, and netcdf.h5."""

import gzip
import json
import pathlib
import tempfile

import h5py
import lindi
import numpy as np

HERE = pathlib.Path(__file__).parent
path = pathlib.Path(tempfile.mkdtemp()) / 'a.h5'
f = h5py.File(path, 'w')
f.attrs['object_id']='root-id'
f.attrs['i']=5; f.attrs['f']=1.5; f.attrs['nan']=float('nan'); f.attrs['s']='text ü'; f.attrs['b']=np.bytes_(b'abc'); f.attrs['li']=[1,2,3]; f.attrs['ls']=['a','b']; f.attrs['bool']=True; f.attrs['sarr']=np.array([b'x',b'yy'],dtype='S3')
g=f.create_group('g'); g.attrs['object_id']='gid'
f.attrs['ref']=g.ref
f['small']=np.arange(10,dtype='i4'); f['small'].attrs['u']=1
f['scalar']=3.25; f['iscalar']=7; f['str']='hello ü'; f['bstr']=np.bytes_(b'bytes')
f['strs']=np.array(['a','bb','ü'],dtype=h5py.string_dtype())
f['fstrs']=np.array([b'a',b'bb'],dtype='S4')
f['bools']=np.array([True,False]); f['bigbools']=np.ones(2000,bool)
f['big']=np.arange(5000,dtype='f4')
f.create_dataset('chunked',data=np.arange(100*100,dtype='i2').reshape(100,100),chunks=(30,40),compression='gzip',shuffle=True,fletcher32=True,fillvalue=7)
f.create_dataset('empty',shape=(0,3),dtype='f8')
f.create_dataset('never',shape=(2000,),dtype='f8',chunks=(100,),fillvalue=np.nan)
f['comp']=np.array([(1,2.5,b'q'),(3,4.5,b'rr')],dtype=[('x','i4'),('y','f8'),('z','S2')])
ct=np.dtype([('a','i4'),('r',h5py.ref_dtype)])
d=f.create_dataset('compref',(2,),dtype=ct); d[0]=(1,g.ref); d[1]=(2,f['small'].ref)
r=f.create_dataset('refs',(2,),dtype=h5py.ref_dtype); r[0]=g.ref; r[1]=f['big'].ref
f['soft']=h5py.SoftLink('/g'); f['softd']=h5py.SoftLink('/small'); f['hard']=f['small']
f['en']=np.array([1,2],dtype=h5py.enum_dtype({'A':1,'B':2},basetype='i1'))
f.create_dataset('many',data=np.zeros(3000,'u1'),chunks=(2,))
f['u64']=np.array([2**63],dtype='u8'); f['be']=np.arange(3,dtype='>f4'); f['g/sub']=np.arange(4)
f['scomp']=1
f.close()
references = lindi.LindiH5ZarrStore.from_file(str(path), url="http://x/a.h5").to_reference_file_system()
(HERE / "references.h5.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
(HERE / "references.json.gz").write_bytes(gzip.compress(json.dumps(references).encode(), mtime=0))

path = HERE / "refused.h5"
f = h5py.File(path, "w", libver="latest")
f["x"] = np.arange(3, dtype="i4")
null, ascii = h5py.Reference(), h5py.string_dtype("ascii")
f["ref/one"] = f["x"].ref
f["ref/null"] = null
f["ref/some"] = np.array([f["x"].ref, null], h5py.ref_dtype)
f["ref/grid"] = np.array([[null, null], [null, f["x"].ref]], h5py.ref_dtype)
f["ref/compound"] = np.array([(1, f["x"].ref), (2, null)], [("n", "i4"), ("to", h5py.ref_dtype)])
f["ref"].attrs.create("null", null, dtype=h5py.ref_dtype)
f["ref"].attrs.create("one", f["x"].ref, dtype=h5py.ref_dtype)
micro = b"\xb5V"  # Latin-1
f["text/one"] = np.array(micro, dtype=ascii)
f["text/some"] = np.array([micro, b"a"], dtype=ascii)
f["text/grid"] = np.array([[b"", b"longer"], [b"\xff", micro]], dtype=ascii)
f["text/fixed"] = np.array([micro, b"a"], dtype="S3")
f["text/utf8"] = np.array(["µV", "a"], dtype=h5py.string_dtype())
padded = h5py.h5t.C_S1.copy()
padded.set_size(4)
padded.set_strpad(h5py.h5t.STR_SPACEPAD)
h5py.h5d.create(f["text"].id, b"padded", padded, h5py.h5s.create_simple((2,))).write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([b"\xb5V  ", b"a   "], "S4"), padded)
f["text/compound"] = np.array([(1, micro)], [("n", "i4"), ("t", "S2")])
f["text"].attrs["unit"] = np.bytes_(micro)
f["text"].attrs["units"] = np.array([b"a", micro])
f["text"].attrs["fine"] = "µV"
f["text/some"].attrs["unit"] = np.array(micro, dtype=ascii)
names = f.create_group("name")
names.id.links.create_soft(b"link", micro)
f["name"].attrs[b"\xb5"] = 1
h5py.h5g.create(f["name"].id, b"\xb5")
f["name/ref"] = np.array([f["name"][b"\xb5"].ref], h5py.ref_dtype)
row = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
row.insert(b"\xb5", 0, h5py.h5t.STD_I32LE)
h5py.h5d.create(f["name"].id, b"row", row, h5py.h5s.create_simple((2,)))
f.create_group("id").attrs["object_id"] = np.bytes_(micro)
f["id/ref"] = np.array([f["id"].ref], h5py.ref_dtype)
f.close()

path = HERE / "netcdf.h5"
f = h5py.File(path, "w", libver="latest")
f.attrs["_NCProperties"] = "version=2"
f.attrs["title"], f.attrs["level"] = "of netCDF", np.array([5], "i4")
for number, (name, value) in enumerate({"time": np.arange(4.0), "y": np.zeros(3, ">f4"), "lat": np.ones((4, 3))}.items()):
    d = f.create_dataset(name, data=value)
    d.make_scale("This is a netCDF dimension but not a netCDF variable         3" if name == "y" else name)
    d.attrs["_Netcdf4Dimid"] = np.int32(number)
f["time"].attrs["units"] = "days since 2001-01-01"
f["lat"].attrs["_Netcdf4Coordinates"] = np.array([0, 1], "i4")


def array(name, shape, dims, fill=None, **how):
    d = f.create_dataset(name, shape, fillvalue=fill, **how)
    if fill is not None:
        d.attrs["_FillValue"] = np.array([fill], d.dtype)
    for i, dim in enumerate(dims):
        d.dims[i].attach_scale(f[dim])
    return d


array("full", (4, 3), ["time", "y"], dtype="i2", chunks=(2, 3))[...] = 1
array("masked", (4, 3), ["time", "y"], -9.5, dtype="f4", chunks=(2, 3), compression="gzip")[...] = 1
array("written", (1000, 2), [], -1, dtype="i2", chunks=(500, 2))[...] = 1
array("sparse", (1000, 2), [], dtype="i2", chunks=(500, 2))[:500] = 1
array("text", (3,), ["y"], dtype=h5py.string_dtype())[...] = ["a", "ü", ""]
array("below/square", (7, 7), [], dtype="f8")
array("below/longer", (7, 4), [], dtype="f8")
array("below/known", (7, 4), [], dtype="u1").dims[1].attach_scale(f["time"])
f["crs"] = np.int32(3)
f["crs"].attrs["axis"], f["crs"].attrs["axes"] = np.array([6378137.0]), np.arange(2)
f.close()

with h5py.File(HERE / "data.h5", "w", libver="latest") as f:
    f.create_dataset("frames", data=np.arange(20 * 10 * 8, dtype="<u4").reshape(20, 10, 8), chunks=(1, 10, 8), compression="gzip")
    f["run"], f["few"], f["texts"] = np.arange(1200, dtype="<u4").reshape(300, 4), np.arange(12, dtype="<u4"), np.array(["a", "b"], object)
with h5py.File(HERE / "master.h5", "w", libver="latest") as f:
    for name in ["frames", "few", "run", "texts"]:
        f[name] = h5py.ExternalLink("data.h5", name)
    f["group"], f["none"] = h5py.ExternalLink("data.h5", "/"), h5py.ExternalLink("none.h5", "few")
    f["away"] = h5py.ExternalLink("../../../../etc/hostname", "few")
    layout = h5py.VirtualLayout((24, 10, 8), "<u4")
    layout[:20] = h5py.VirtualSource("data.h5", "frames", (20, 10, 8))
    f.create_virtual_dataset("virtual", layout, fillvalue=7)

#!/usr/bin/env python3
"""Make references.h5.gz, and references.json.gz: the references that lindi makes of it."""

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

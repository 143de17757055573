// What the entries of a view are called. People of HDF5 know its objects by the names that h5dump has for them.
import { count } from './base.js';
import { archive, hasKind } from './state.js';

const plain = { column: 'Files', folders: n => count(n, 'folder'), files: n => count(n, 'file'), kinds: {} };
const nodes = { ...plain, column: 'Properties', files: n => count(n, 'property', 'properties') };
const objects = { column: 'Objects', folders: n => count(n, 'group'), files: n => count(n, 'dataset or attribute', 'datasets and attributes'), kinds: { property: 'attribute' }, icon: 9 };
const isObjects = () => archive.view === 'objects' && hasKind('arrays');
export const wordsOf = () => hasKind('node') ? nodes : isObjects() ? objects : plain;
/** The type of an array, with its name in HDF5 where that is shown. */
export function typeOf(dtype) {
  const m = /^([<>|])([iuf])(\d+)$/.exec(dtype);
  return m && isObjects() ? `${dtype} (H5T_${m[2] === 'f' ? 'IEEE_F' : 'STD_' + m[2].toUpperCase()}${8 * Number(m[3])}${m[1] === '>' ? 'BE' : 'LE'})` : dtype;
}

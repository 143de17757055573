// Package naming is about names of entries, which may be any bytes: whether they are paths, whether
// they may be extracted, and how they are printed.
package naming

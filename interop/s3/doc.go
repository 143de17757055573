// Package s3 lets a server that others wrote keep what store/bucket writes, by the
// suite that every store passes. It is tests only; nothing can be imported from here.
package s3

// Package s3 tests store/bucket with an independent implementation of S3, using the conformance
// suite of stores. It contains only tests.
package s3

// Package gateway tests 'holdall serve --s3 --write' with ceph's s3-tests, which compare a server
// with Amazon's. HOLDALL_S3TESTS is a checkout of them, and HOLDALL_S3TESTS_PYTHON a python that
// has what they require. s3tests.tsv says what is expected of each case:
//
//   - pass: it passes.
//   - differs: it fails, although it is about something that a gateway has. The reason says why.
//   - outside: it is about something that a gateway does not have, or is set up with that. It is not
//     run.
//
// It contains only tests.
package gateway

// Package serve lets programs of others ask what internal/app/serve serves: schemathesis, which
// compares answers with docs/openapi.yaml, and rclone, a client of S3. It is tests only;
// nothing can be imported from here.
package serve

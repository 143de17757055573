// Package serve tests internal/app/serve with other programs: schemathesis, which compares
// responses with docs/openapi.yaml, and rclone, a client of S3. It contains only tests.
package serve

// Package docs is what a program has of these pages: the description of what holdall
// serves, for programs, and that of the command, for its help.
package docs

import _ "embed"

// OpenAPI describes what holdall serves over HTTP.
//
//go:embed openapi.yaml
var OpenAPI []byte

// CLI describes the command line.
//
//go:embed cli.md
var CLI string

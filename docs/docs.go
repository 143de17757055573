// Package docs embeds pages for the program: the OpenAPI description of what holdall serves, and the
// description of the command, for its help.
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

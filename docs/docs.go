// Package docs embeds pages for the program: the OpenAPI description of what holdall serves, and the
// reference of the command, for its help.
package docs

import _ "embed"

// OpenAPI describes what holdall serves over HTTP.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Reference describes what the command reads and prints.
//
//go:embed reference.md
var Reference string

// Package docs embeds the OpenAPI description of what holdall serves, for the program.
package docs

import _ "embed"

// OpenAPI describes what holdall serves over HTTP.
//
//go:embed openapi.yaml
var OpenAPI []byte

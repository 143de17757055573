// Package e2e looks at the explorer as people do: in a browser, of what the command serves. It
// is a module of its own, so that what drives the browser is no dependency of who uses holdall.
package e2e

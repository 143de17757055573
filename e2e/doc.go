// Package e2e tests the explorer in a browser, with what the command serves. It is a module of
// its own, so that programs that use holdall do not depend on what drives the browser.
package e2e

// Package azure tests store/azure with the emulator that Azure's makers publish, using the
// conformance suite of stores. It contains only tests.
package azure

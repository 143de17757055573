// Package azure lets the emulator that Azure's makers publish keep what store/azure
// writes, by the suite that every store passes. It is tests only; nothing can be
// imported from here.
package azure

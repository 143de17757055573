//go:build !libzstd || !cgo

package rvn

const libzstdAdvice = "; numbers need holdall built with libzstd"

// newLibzstd gives no compressor: this build has no libzstd.
func newLibzstd(string, int, int) (compressor, error) { return nil, nil }

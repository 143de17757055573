//go:build !libzstd || !cgo

package rvn

const libzstdAdvice = "; numbers need holdall built with libzstd"

// newLibzstd returns no compressor, because this build has no libzstd.
func newLibzstd(string, int, int) (compressor, error) { return nil, nil }

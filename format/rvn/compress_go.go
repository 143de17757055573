//go:build !libzstd || !cgo

package rvn

const libzstdAdvice = ", or a number from 1 to 19, which is the word next to it unless holdall is built with libzstd"

// newLibzstd returns no compressor, because this build has no libzstd.
func newLibzstd(string, int, int) (compressor, error) { return nil, nil }

//go:build !amd64

package gf16

func kernels(do func(name string)) { do("go") }

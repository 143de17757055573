package gf16

func kernels(do func(name string)) {
	nibbles, gfni, wide := useNibbles, useAffine, useWide
	defer func() { useNibbles, useAffine, useWide = nibbles, gfni, wide }()
	if useWide {
		do("avx512")
	}
	if useWide = false; useAffine {
		do("gfni")
	}
	if useAffine = false; useNibbles {
		do("avx2")
	}
	useNibbles = false
	do("go")
}

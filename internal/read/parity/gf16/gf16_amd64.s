#include "textflag.h"

// The tables of the low nibbles of low bytes, high nibbles of low bytes, low and high
// nibbles of high bytes; of them the low bytes of products, then the high ones.
#define NIBBLES \
	MOVQ x+0(FP), CX; \
	MOVQ y+8(FP), DX; \
	MOVQ n+16(FP), AX; \
	MOVQ nibbles+24(FP), BX; \
	VBROADCASTI128 (BX), Y0; \
	VBROADCASTI128 16(BX), Y1; \
	VBROADCASTI128 32(BX), Y2; \
	VBROADCASTI128 48(BX), Y3; \
	VBROADCASTI128 64(BX), Y4; \
	VBROADCASTI128 80(BX), Y5; \
	VBROADCASTI128 96(BX), Y6; \
	VBROADCASTI128 112(BX), Y7; \
	MOVQ $15, BX; \
	MOVQ BX, X8; \
	VPBROADCASTB X8, Y8

// Y9, Y10 += c * (Y11, Y12); it uses Y13, Y14, Y15.
#define MULADD \
	VPAND Y8, Y11, Y13; \
	VPSHUFB Y13, Y0, Y14; \
	VPXOR Y14, Y9, Y9; \
	VPSHUFB Y13, Y4, Y14; \
	VPXOR Y14, Y10, Y10; \
	VPSRLQ $4, Y11, Y13; \
	VPAND Y8, Y13, Y13; \
	VPSHUFB Y13, Y1, Y14; \
	VPXOR Y14, Y9, Y9; \
	VPSHUFB Y13, Y5, Y14; \
	VPXOR Y14, Y10, Y10; \
	VPAND Y8, Y12, Y13; \
	VPSHUFB Y13, Y2, Y14; \
	VPXOR Y14, Y9, Y9; \
	VPSHUFB Y13, Y6, Y14; \
	VPXOR Y14, Y10, Y10; \
	VPSRLQ $4, Y12, Y13; \
	VPAND Y8, Y13, Y13; \
	VPSHUFB Y13, Y3, Y14; \
	VPXOR Y14, Y9, Y9; \
	VPSHUFB Y13, Y7, Y14; \
	VPXOR Y14, Y10, Y10

#define LOAD \
	VMOVDQU (CX), Y9; \
	VMOVDQU 32(CX), Y10; \
	VMOVDQU (DX), Y11; \
	VMOVDQU 32(DX), Y12

#define STORE \
	VMOVDQU Y9, (CX); \
	VMOVDQU Y10, 32(CX); \
	VMOVDQU Y11, (DX); \
	VMOVDQU Y12, 32(DX); \
	ADDQ $64, CX; \
	ADDQ $64, DX; \
	SUBQ $64, AX

// y += x
#define ADD \
	VPXOR Y9, Y11, Y11; \
	VPXOR Y10, Y12, Y12

#define AFFINE \
	MOVQ x+0(FP), CX; \
	MOVQ y+8(FP), DX; \
	MOVQ n+16(FP), AX; \
	MOVQ affine+24(FP), BX; \
	VBROADCASTSD (BX), Y0; \
	VBROADCASTSD 8(BX), Y1; \
	VBROADCASTSD 16(BX), Y2; \
	VBROADCASTSD 24(BX), Y3

// Y9, Y10 += c * (Y11, Y12)
#define MULADDBITS \
	VGF2P8AFFINEQB $0, Y0, Y11, Y4; \
	VGF2P8AFFINEQB $0, Y1, Y12, Y5; \
	VGF2P8AFFINEQB $0, Y2, Y11, Y6; \
	VGF2P8AFFINEQB $0, Y3, Y12, Y7; \
	VPXOR Y4, Y9, Y9; \
	VPXOR Y6, Y10, Y10; \
	VPXOR Y5, Y9, Y9; \
	VPXOR Y7, Y10, Y10

// SUMS adds x and y to what SI and DI point to, and goes on.
#define SUMS \
	VPXOR (SI), Y9, Y9; \
	VPXOR 32(SI), Y10, Y10; \
	VPXOR (DI), Y11, Y11; \
	VPXOR 32(DI), Y12, Y12; \
	VMOVDQU Y9, (SI); \
	VMOVDQU Y10, 32(SI); \
	VMOVDQU Y11, (DI); \
	VMOVDQU Y12, 32(DI); \
	ADDQ $64, CX; \
	ADDQ $64, DX; \
	ADDQ $64, SI; \
	ADDQ $64, DI; \
	SUBQ $64, AX

// ARGUMENTS are those that all kernels for 64 bytes have.
#define ARGUMENTS \
	MOVQ to+0(FP), DI; \
	MOVQ n+8(FP), CX; \
	MOVQ from+16(FP), SI; \
	LEAQ (CX)(CX*2), R9; \
	MOVQ CX, AX

// func inverseAVX2(x, y *byte, n int, nibbles *[8][16]byte)
TEXT ·inverseAVX2(SB), NOSPLIT, $0-32
	NIBBLES
loop:
	LOAD
	ADD
	MULADD
	STORE
	JNZ loop
	VZEROUPPER
	RET

// func forwardAVX2(x, y *byte, n int, nibbles *[8][16]byte)
TEXT ·forwardAVX2(SB), NOSPLIT, $0-32
	NIBBLES
loop:
	LOAD
	MULADD
	ADD
	STORE
	JNZ loop
	VZEROUPPER
	RET

// func inverseGFNI(x, y *byte, n int, affine *[4]uint64)
TEXT ·inverseGFNI(SB), NOSPLIT, $0-32
	AFFINE
loop:
	LOAD
	ADD
	MULADDBITS
	STORE
	JNZ loop
	VZEROUPPER
	RET

// func forwardGFNI(x, y *byte, n int, affine *[4]uint64)
TEXT ·forwardGFNI(SB), NOSPLIT, $0-32
	AFFINE
loop:
	LOAD
	MULADDBITS
	ADD
	STORE
	JNZ loop
	VZEROUPPER
	RET

// func addInverseAVX2(x, y *byte, n int, nibbles *[8][16]byte, sx, sy *byte)
TEXT ·addInverseAVX2(SB), NOSPLIT, $0-48
	NIBBLES
	MOVQ sx+32(FP), SI
	MOVQ sy+40(FP), DI
loop:
	LOAD
	ADD
	MULADD
	SUMS
	JNZ loop
	VZEROUPPER
	RET

// func addInverseGFNI(x, y *byte, n int, affine *[4]uint64, sx, sy *byte)
TEXT ·addInverseGFNI(SB), NOSPLIT, $0-48
	AFFINE
	MOVQ sx+32(FP), SI
	MOVQ sy+40(FP), DI
loop:
	LOAD
	ADD
	MULADDBITS
	SUMS
	JNZ loop
	VZEROUPPER
	RET

// What follows does the butterflies of two layers at once, on 64 bytes: the low bytes of 32
// elements and then their high ones. K1 selects the high ones.
#define WIDE \
	MOVW $0xF0, AX; \
	KMOVW AX, K1

// M1 multiplies each half of an element by itself, M2 the other half.
#define MATRICES(of, M1, M2) \
	MOVQ of, BX; \
	VPBROADCASTQ (BX), M1; \
	VPBROADCASTQ 24(BX), K1, M1; \
	VPBROADCASTQ 8(BX), M2; \
	VPBROADCASTQ 16(BX), K1, M2

// Y += X, X += c * Y
#define BUTTERFLY(X, Y, M1, M2) \
	VPXORQ X, Y, Y; \
	VSHUFI64X2 $0x4E, Y, Y, Z31; \
	VGF2P8AFFINEQB $0, M1, Y, Z30; \
	VGF2P8AFFINEQB $0, M2, Z31, Z31; \
	VPTERNLOGQ $0x96, Z30, Z31, X

#define BUTTERFLIES \
	BUTTERFLY(Z0, Z1, Z16, Z17); \
	BUTTERFLY(Z2, Z3, Z18, Z19); \
	BUTTERFLY(Z0, Z2, Z20, Z21); \
	BUTTERFLY(Z1, Z3, Z20, Z21)

// TAKE reads four parts from SI on, S bytes apart; S3 is three times that.
#define TAKE(S, S3) \
	VMOVDQU64 (SI), Z0; \
	VMOVDQU64 (SI)(S*1), Z1; \
	VMOVDQU64 (SI)(S*2), Z2; \
	VMOVDQU64 (SI)(S3*1), Z3

// PUT writes four parts from DI on, CX bytes apart, and goes on; R9 is three times CX.
#define PUT \
	VMOVDQU64 Z0, (DI); \
	VMOVDQU64 Z1, (DI)(CX*1); \
	VMOVDQU64 Z2, (DI)(CX*2); \
	VMOVDQU64 Z3, (DI)(R9*1); \
	ADDQ $64, SI; \
	ADDQ $64, DI; \
	SUBQ $64, AX

// func inverse4Wide(to *byte, n int, from *byte, stride int, c1, c2, c3 *[4]uint64)
TEXT ·inverse4Wide(SB), NOSPLIT, $0-56
	WIDE
	MATRICES(c1+32(FP), Z16, Z17)
	MATRICES(c2+40(FP), Z18, Z19)
	MATRICES(c3+48(FP), Z20, Z21)
	ARGUMENTS
	MOVQ stride+24(FP), DX
	LEAQ (DX)(DX*2), R8
loop:
	TAKE(DX, R8)
	BUTTERFLIES
	PUT
	JNZ loop
	VZEROUPPER
	RET

// func first4Wide(to *byte, n int, from *byte, stride int, c1, c2, c3 *[4]uint64, sum *byte)
TEXT ·first4Wide(SB), NOSPLIT, $0-64
	WIDE
	MATRICES(c1+32(FP), Z16, Z17)
	MATRICES(c2+40(FP), Z18, Z19)
	MATRICES(c3+48(FP), Z20, Z21)
	ARGUMENTS
	MOVQ stride+24(FP), DX
	LEAQ (DX)(DX*2), R8
	MOVQ sum+56(FP), R10
loop:
	TAKE(DX, R8)
	VPXORQ (R10), Z0, Z4
	VPTERNLOGQ $0x96, Z1, Z2, Z4
	VPXORQ Z3, Z4, Z4
	VMOVDQU64 Z4, (R10)
	ADDQ $64, R10
	BUTTERFLIES
	PUT
	JNZ loop
	VZEROUPPER
	RET

// func addInverse4Wide(to *byte, n int, from *byte, c1, c2, c3 *[4]uint64)
TEXT ·addInverse4Wide(SB), NOSPLIT, $0-48
	WIDE
	MATRICES(c1+24(FP), Z16, Z17)
	MATRICES(c2+32(FP), Z18, Z19)
	MATRICES(c3+40(FP), Z20, Z21)
	ARGUMENTS
loop:
	TAKE(CX, R9)
	BUTTERFLIES
	VPXORQ (DI), Z0, Z0
	VPXORQ (DI)(CX*1), Z1, Z1
	VPXORQ (DI)(CX*2), Z2, Z2
	VPXORQ (DI)(R9*1), Z3, Z3
	PUT
	JNZ loop
	VZEROUPPER
	RET

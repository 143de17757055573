#include "funcdata.h"
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

#define WIDE \
	MOVW $0xF0, AX; \
	KMOVW AX, K1

// ARGUMENTS are those of the kernels for several layers.
#define ARGUMENTS \
	WIDE; \
	MOVQ to+0(FP), DI; \
	MOVQ n+8(FP), CX; \
	MOVQ from+16(FP), SI; \
	MOVQ stride+24(FP), R12; \
	MOVQ factors+32(FP), BX; \
	MOVQ step+40(FP), DX; \
	LEAQ (CX)(CX*2), R9; \
	LEAQ (R12)(R12*2), R8; \
	LEAQ (SI)(R12*4), R10; \
	LEAQ (DI)(CX*4), R11; \
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

// What follows does several layers of butterflies at once, on 64 bytes: the low bytes of 32 elements
// and then their high ones. K1 selects the high ones.

// FACTOR goes to the next factor. M1 multiplies each half of an element by itself, M2 the other half.
#define FACTOR(M1, M2) \
	ADDQ DX, BX; \
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

// STORED is a butterfly whose two matrices are at R8, 128 bytes for each factor.
#define STORED(X, Y, factor) BUTTERFLY(X, Y, (factor*128)(R8), (factor*128+64)(R8))

// ROWS reads four blocks from P on, DX bytes apart; R13 is three times that. It adds them to Z29.
#define ROWS(P, A, B, C, D) \
	VMOVDQU64 (P), A; \
	VMOVDQU64 (P)(DX*1), B; \
	VMOVDQU64 (P)(DX*2), C; \
	VMOVDQU64 (P)(R13*1), D; \
	VPTERNLOGQ $0x96, A, B, Z29; \
	VPTERNLOGQ $0x96, C, D, Z29; \
	ADDQ $64, P

// func putWide(to, from *byte, n int, near *byte, factors *factor, step uintptr)
TEXT ·putWide(SB), 0, $2112-48
	NO_LOCAL_POINTERS
	WIDE
	LEAQ 63(SP), R8
	ANDQ $-64, R8
	MOVQ factors+32(FP), BX
	MOVQ step+40(FP), DX
	MOVQ R8, DI
	MOVQ $15, CX
factors:
	ADDQ $128, DI
	FACTOR(Z0, Z1)
	VMOVDQU64 Z0, (DI)
	VMOVDQU64 Z1, 64(DI)
	DECQ CX
	JNZ factors
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ n+16(FP), DX
	MOVQ near+24(FP), R9
	LEAQ (DX)(DX*2), R13
	LEAQ (SI)(DX*4), R10
	LEAQ (R10)(DX*4), R11
	LEAQ (R11)(DX*4), R12
	MOVQ DX, CX
loop:
	VMOVDQU64 (R9), Z29
	ROWS(SI, Z0, Z1, Z2, Z3)
	ROWS(R10, Z4, Z5, Z6, Z7)
	ROWS(R11, Z8, Z9, Z10, Z11)
	ROWS(R12, Z12, Z13, Z14, Z15)
	VMOVDQU64 Z29, (R9)
	STORED(Z0, Z1, 1)
	STORED(Z2, Z3, 3)
	STORED(Z4, Z5, 5)
	STORED(Z6, Z7, 7)
	STORED(Z8, Z9, 9)
	STORED(Z10, Z11, 11)
	STORED(Z12, Z13, 13)
	STORED(Z14, Z15, 15)
	STORED(Z0, Z2, 2)
	STORED(Z1, Z3, 2)
	STORED(Z4, Z6, 6)
	STORED(Z5, Z7, 6)
	STORED(Z8, Z10, 10)
	STORED(Z9, Z11, 10)
	STORED(Z12, Z14, 14)
	STORED(Z13, Z15, 14)
	STORED(Z0, Z4, 4)
	STORED(Z1, Z5, 4)
	STORED(Z2, Z6, 4)
	STORED(Z3, Z7, 4)
	STORED(Z8, Z12, 12)
	STORED(Z9, Z13, 12)
	STORED(Z10, Z14, 12)
	STORED(Z11, Z15, 12)
	STORED(Z0, Z8, 8)
	STORED(Z1, Z9, 8)
	STORED(Z2, Z10, 8)
	STORED(Z3, Z11, 8)
	STORED(Z4, Z12, 8)
	STORED(Z5, Z13, 8)
	STORED(Z6, Z14, 8)
	STORED(Z7, Z15, 8)
	VMOVNTDQ Z0, (DI)
	VMOVNTDQ Z1, 64(DI)
	VMOVNTDQ Z2, 128(DI)
	VMOVNTDQ Z3, 192(DI)
	VMOVNTDQ Z4, 256(DI)
	VMOVNTDQ Z5, 320(DI)
	VMOVNTDQ Z6, 384(DI)
	VMOVNTDQ Z7, 448(DI)
	VMOVNTDQ Z8, 512(DI)
	VMOVNTDQ Z9, 576(DI)
	VMOVNTDQ Z10, 640(DI)
	VMOVNTDQ Z11, 704(DI)
	VMOVNTDQ Z12, 768(DI)
	VMOVNTDQ Z13, 832(DI)
	VMOVNTDQ Z14, 896(DI)
	VMOVNTDQ Z15, 960(DI)
	ADDQ $1024, DI
	ADDQ $64, R9
	SUBQ $64, CX
	JNZ loop
	SFENCE
	VZEROUPPER
	RET

// TAKE reads four parts from P on. It fetches what comes next into the cache.
#define TAKE(P, A, B, C, D) \
	PREFETCHT0 256(P); \
	PREFETCHT0 256(P)(R12*1); \
	PREFETCHT0 256(P)(R12*2); \
	PREFETCHT0 256(P)(R8*1); \
	VMOVDQU64 (P), A; \
	VMOVDQU64 (P)(R12*1), B; \
	VMOVDQU64 (P)(R12*2), C; \
	VMOVDQU64 (P)(R8*1), D; \
	ADDQ $64, P

// SUMS adds four parts from P on, and fetches those from NEXT on into the cache.
#define SUMS(P, NEXT, A, B, C, D) \
	PREFETCHT0 (NEXT); \
	PREFETCHT0 (NEXT)(CX*1); \
	PREFETCHT0 (NEXT)(CX*2); \
	PREFETCHT0 (NEXT)(R9*1); \
	VPXORQ (P), A, A; \
	VPXORQ (P)(CX*1), B, B; \
	VPXORQ (P)(CX*2), C, C; \
	VPXORQ (P)(R9*1), D, D; \
	ADDQ $64, NEXT

// PUT writes four parts from P on.
#define PUT(P, A, B, C, D) \
	VMOVDQU64 A, (P); \
	VMOVDQU64 B, (P)(CX*1); \
	VMOVDQU64 C, (P)(CX*2); \
	VMOVDQU64 D, (P)(R9*1); \
	ADDQ $64, P

#define FACTORS8 \
	FACTOR(Z8, Z9); \
	FACTOR(Z10, Z11); \
	FACTOR(Z12, Z13); \
	FACTOR(Z14, Z15); \
	FACTOR(Z16, Z17); \
	FACTOR(Z18, Z19); \
	FACTOR(Z20, Z21)

#define LAYERS8 \
	TAKE(SI, Z0, Z1, Z2, Z3); \
	TAKE(R10, Z4, Z5, Z6, Z7); \
	BUTTERFLY(Z0, Z1, Z8, Z9); \
	BUTTERFLY(Z2, Z3, Z12, Z13); \
	BUTTERFLY(Z4, Z5, Z16, Z17); \
	BUTTERFLY(Z6, Z7, Z20, Z21); \
	BUTTERFLY(Z0, Z2, Z10, Z11); \
	BUTTERFLY(Z1, Z3, Z10, Z11); \
	BUTTERFLY(Z4, Z6, Z18, Z19); \
	BUTTERFLY(Z5, Z7, Z18, Z19); \
	BUTTERFLY(Z0, Z4, Z14, Z15); \
	BUTTERFLY(Z1, Z5, Z14, Z15); \
	BUTTERFLY(Z2, Z6, Z14, Z15); \
	BUTTERFLY(Z3, Z7, Z14, Z15)

// func layers4Wide(to *byte, n int, from *byte, stride int, factors *factor, step uintptr)
TEXT ·layers4Wide(SB), NOSPLIT, $0-48
	ARGUMENTS
	FACTOR(Z8, Z9)
	FACTOR(Z10, Z11)
	FACTOR(Z12, Z13)
loop:
	TAKE(SI, Z0, Z1, Z2, Z3)
	BUTTERFLY(Z0, Z1, Z8, Z9)
	BUTTERFLY(Z2, Z3, Z12, Z13)
	BUTTERFLY(Z0, Z2, Z10, Z11)
	BUTTERFLY(Z1, Z3, Z10, Z11)
	PUT(DI, Z0, Z1, Z2, Z3)
	SUBQ $64, AX
	JNZ loop
	VZEROUPPER
	RET

// func layers8Wide(to *byte, n int, from *byte, stride int, factors *factor, step uintptr)
TEXT ·layers8Wide(SB), NOSPLIT, $0-48
	ARGUMENTS
	FACTORS8
loop:
	LAYERS8
	PUT(DI, Z0, Z1, Z2, Z3)
	PUT(R11, Z4, Z5, Z6, Z7)
	SUBQ $64, AX
	JNZ loop
	VZEROUPPER
	RET

// func addLayers8Wide(sum *byte, n int, from *byte, stride int, factors *factor, step uintptr)
TEXT ·addLayers8Wide(SB), NOSPLIT, $0-48
	ARGUMENTS
	FACTORS8
	LEAQ (R11)(CX*4), R13
	LEAQ (R13)(CX*4), BX
loop:
	LAYERS8
	SUMS(DI, R13, Z0, Z1, Z2, Z3)
	SUMS(R11, BX, Z4, Z5, Z6, Z7)
	PUT(DI, Z0, Z1, Z2, Z3)
	PUT(R11, Z4, Z5, Z6, Z7)
	SUBQ $64, AX
	JNZ loop
	VZEROUPPER
	RET

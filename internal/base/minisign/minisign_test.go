package minisign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/crypto/scrypt"
)

const (
	published = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
	signature = "untrusted comment: signature from minisign secret key\n" +
		"RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\n" +
		"trusted comment: timestamp:1633700835\tfile:test\tprehashed\n" +
		"wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==\n"
)

// TestMinisign verifies a signature that minisign's author has published.
func TestMinisign(t *testing.T) {
	k, err := ParseKey([]byte(published))
	if err != nil || k.String() != published {
		t.Fatal(k, err)
	}
	if again, err := ParseKey(k.File()); err != nil || again != k {
		t.Fatal(again, err)
	}
	for _, file := range []string{signature, strings.ReplaceAll(signature, "\n", "\r\n"), strings.TrimSuffix(signature, "\n")} {
		s, err := ParseSignature([]byte(file))
		if err != nil || s.Comment != "timestamp:1633700835\tfile:test\tprehashed" {
			t.Fatal(s, err)
		}
		if by, err := s.Verify([]byte("test"), []Key{{}, k}); err != nil || by != k {
			t.Fatal(by, err)
		}
		if _, err := s.Verify([]byte("tesT"), []Key{k}); err == nil {
			t.Fatal("verified another message")
		}
		if _, err := s.Verify([]byte("test"), []Key{{}}); !errors.Is(err, ErrKey) {
			t.Fatal(err)
		}
		s.Comment += " "
		if _, err := s.Verify([]byte("test"), []Key{k}); err == nil {
			t.Fatal("verified another comment")
		}
	}
}

// TestSigned signs with keys that are new, stored and encrypted.
func TestSigned(t *testing.T) {
	made, err := NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := ParseSecret(made.File(), "")
	if err != nil || stored.Public() != made.Public() {
		t.Fatal(err)
	}
	file := encrypted(t, made, "secret")
	if _, err := ParseSecret(file, ""); !errors.Is(err, ErrPassword) {
		t.Fatal(err)
	}
	if _, err := ParseSecret(file, "Secret"); !errors.Is(err, ErrPassword) {
		t.Fatal(err)
	}
	opened, err := ParseSecret(file, "secret")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []Secret{made, stored, opened} {
		s, err := ParseSignature(secret.Sign([]byte("message"), "about it"))
		if err != nil || s.Comment != "about it" {
			t.Fatal(s, err)
		}
		if _, err := s.Verify([]byte("message"), []Key{made.Public()}); err != nil {
			t.Fatal(err)
		}
	}
}

// encrypted returns the file of a key with a password that takes little memory.
func encrypted(t *testing.T, s Secret, password string) []byte {
	b, err := base64.StdEncoding.DecodeString(linesOf(s.File())[1])
	if err != nil {
		t.Fatal(err)
	}
	copy(b[kdfAt:], kdf)
	binary.LittleEndian.PutUint64(b[opsAt:], 32768)
	binary.LittleEndian.PutUint64(b[memAt:], 16<<20)
	sum := keySum(b)
	copy(b[sumAt:], sum[:])
	n, p, err := scryptOf(32768, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := scrypt.Key([]byte(password), b[saltAt:opsAt], n, scryptR, p, fileLen-numberAt)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range stream {
		b[numberAt+i] ^= x
	}
	return []byte("untrusted comment: x\n" + base64.StdEncoding.EncodeToString(b) + "\n")
}

// TestScrypt compares parameters with those of libsodium's limits "sensitive" and "interactive".
func TestScrypt(t *testing.T) {
	for _, c := range []struct {
		ops, mem uint64
		n, p     int
	}{{33554432, 1073741824, 1 << 20, 1}, {524288, 16777216, 1 << 14, 1}, {0, 0, 2, 512}} {
		if n, p, err := scryptOf(c.ops, c.mem); n != c.n || p != c.p || err != nil {
			t.Errorf("%d, %d: %d, %d, %v", c.ops, c.mem, n, p, err)
		}
	}
	if _, _, err := scryptOf(1<<40, 1<<40); err == nil {
		t.Error("took a terabyte")
	}
}

// TestForged changes each byte of a signature, and of a key.
func TestForged(t *testing.T) {
	k, _ := ParseKey([]byte(published))
	rnd := rand.New(rand.NewPCG(1, 2))
	comment := strings.Index(signature, "\n")
	for range 10_000 {
		b := []byte(signature)
		at := comment + 1 + rnd.IntN(len(b)-comment-2)
		if b[at] ^= byte(1 + rnd.IntN(255)); b[at] == '\r' {
			continue
		}
		if s, err := ParseSignature(b); err == nil {
			if _, err := s.Verify([]byte("test"), []Key{k}); err == nil {
				t.Fatalf("verified with byte %d changed: %q", at, b)
			}
		}
	}
	s, _ := ParseSignature([]byte(signature))
	for i := range k[afterID:] {
		forged := k
		forged[afterID+i] ^= 1
		if _, err := s.Verify([]byte("test"), []Key{forged}); err == nil {
			t.Fatal("verified with another key")
		}
	}
}

func FuzzParse(f *testing.F) {
	secret, err := NewSecret()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(signature))
	f.Add(secret.File())
	f.Add(secret.Public().File())
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := ParseKey(b); err == nil {
			if again, err := ParseKey(k.File()); err != nil || again != k {
				t.Fatal(again, err)
			}
		}
		if s, err := ParseSignature(b); err == nil {
			s.Verify(b, []Key{Key(append(s.one[:afterID:afterID], make([]byte, ed25519.PublicKeySize)...))})
		}
		if len(b) > MaxFile || bytes.Contains(b, []byte("U2M")) {
			return // a password takes memory
		}
		if s, err := ParseSecret(b, ""); err == nil {
			if again, err := ParseSecret(s.File(), ""); err != nil || again.Public() != s.Public() {
				t.Fatal(err)
			}
		}
	})
}

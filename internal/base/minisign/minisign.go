// Package minisign reads and writes keys and signatures in the format of minisign: Ed25519 over the
// BLAKE2b-512 of a message, and over a trusted comment.
package minisign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/scrypt"
)

// MaxFile is the length of the longest key or signature that is read.
const MaxFile = 16 << 10

const (
	untrusted = "untrusted comment: "
	trusted   = "trusted comment: "
	signAlg   = "Ed"
	hashedAlg = "ED"

	idAt    = 2  // in a public key and in a signature: 8 bytes, after the algorithm
	afterID = 10 // the key, or the signature
)

// encode returns what stands in a line of a file. decode is the reverse; what it returns has the length n.
func encode(parts ...[]byte) string {
	return base64.StdEncoding.EncodeToString(slices.Concat(parts...))
}

func decode(line, alg string, n int) (b []byte, ok bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(line)
	return b, err == nil && len(b) == n && string(b[:idAt]) == alg
}

// idText is the number that minisign prints for the key of a line.
func idText(b []byte) string { return fmt.Sprintf("%016X", binary.LittleEndian.Uint64(b[idAt:])) }

// A Key is a public key, as it is in base64 in its file.
type Key [afterID + ed25519.PublicKeySize]byte

func (k Key) String() string { return encode(k[:]) }

// ID is the number that minisign prints for a key.
func (k Key) ID() string { return idText(k[:]) }

// File returns what minisign has in a file of a public key.
func (k Key) File() []byte {
	return fmt.Appendf(nil, "%sminisign public key %s\n%s\n", untrusted, k.ID(), k)
}

// ParseKey reads a public key: its file, or only its text in base64.
func ParseKey(b []byte) (k Key, err error) {
	text := strings.TrimSpace(string(b))
	if lines := linesOf(b); len(lines) > 1 && strings.HasPrefix(lines[0], untrusted) {
		text = lines[1]
	}
	raw, ok := decode(text, signAlg, len(k))
	if !ok {
		return k, errors.New("not a public key of minisign")
	}
	return Key(raw), nil
}

// ParseKeys reads the texts of several keys.
func ParseKeys(texts []string) (keys []Key, err error) {
	for _, text := range texts {
		k, err := ParseKey([]byte(text))
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// A Secret is a secret key.
type Secret struct {
	Key // the public one
	of  ed25519.PrivateKey
}

// newSecret returns the key that has an ID.
func newSecret(id []byte, of ed25519.PrivateKey) Secret {
	return Secret{Key(slices.Concat([]byte(signAlg), id, of.Public().(ed25519.PublicKey))), of}
}

// NewSecret makes a secret key.
func NewSecret() (Secret, error) {
	_, of, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Secret{}, err
	}
	id := make([]byte, afterID-idAt)
	rand.Read(id)
	return newSecret(id, of), nil
}

// Public returns the public key.
func (s Secret) Public() Key { return s.Key }

// A file of a secret key has these bytes in base64; the last three fields are encrypted.
const (
	kdfAt    = 2                       // algorithm
	sumAlgAt = 4                       // of the checksum
	saltAt   = 6                       // 32 bytes
	opsAt    = 38                      // u64
	memAt    = 46                      // u64
	numberAt = 54                      // the ID
	secretAt = 62                      // 64 bytes
	sumAt    = 126                     // BLAKE2b-256 of the algorithm, the ID and the key, if it is encrypted
	fileLen  = sumAt + blake2b.Size256 //
	mostKDF  = 2 << 30                 // bytes of memory that a password may take
	kdf      = "Sc"
)

// File returns what minisign has in a file of a secret key without a password.
func (s Secret) File() []byte {
	b := make([]byte, fileLen)
	copy(b, signAlg+"\x00\x00B2")
	copy(b[numberAt:], s.Key[idAt:afterID])
	copy(b[secretAt:], s.of)
	return fmt.Appendf(nil, "%sminisign secret key %s, without a password\n%s\n", untrusted, s.ID(), encode(b))
}

func keySum(b []byte) [blake2b.Size256]byte {
	return blake2b.Sum256(slices.Concat(b[:kdfAt], b[numberAt:sumAt]))
}

// ErrPassword means that a secret key is encrypted, and the password is missing or wrong.
var ErrPassword = errors.New("the secret key is encrypted")

// ParseSecret reads the file of a secret key, which may be encrypted with a password.
func ParseSecret(file []byte, password string) (s Secret, err error) {
	lines := append(linesOf(file), "", "")
	b, ok := decode(lines[1], signAlg, fileLen)
	if !ok || string(b[sumAlgAt:saltAt]) != "B2" || string(b[kdfAt:sumAlgAt]) != "\x00\x00" && string(b[kdfAt:sumAlgAt]) != kdf {
		return s, errors.New("not a secret key of minisign")
	}
	if b[kdfAt] != 0 {
		if password == "" {
			return s, ErrPassword
		}
		n, p, err := scryptOf(binary.LittleEndian.Uint64(b[opsAt:]), binary.LittleEndian.Uint64(b[memAt:]))
		if err != nil {
			return s, err
		}
		stream, err := scrypt.Key([]byte(password), b[saltAt:opsAt], n, scryptR, p, fileLen-numberAt)
		if err != nil {
			return s, err
		}
		subtle.XORBytes(b[numberAt:], b[numberAt:], stream)
		if sum := keySum(b); subtle.ConstantTimeCompare(sum[:], b[sumAt:]) == 0 {
			return s, fmt.Errorf("%w, and this is not its password", ErrPassword)
		}
	}
	of := ed25519.PrivateKey(b[secretAt:sumAt])
	if !bytes.Equal(ed25519.NewKeyFromSeed(of.Seed()), of) {
		return s, errors.New("the secret key is damaged")
	}
	return newSecret(b[numberAt:secretAt], of), nil
}

const scryptR = 8

// scryptOf chooses the parameters of scrypt as libsodium does for its limits.
func scryptOf(ops, mem uint64) (n, p int, err error) {
	ops = max(ops, 32768)
	if mem > mostKDF || ops > mostKDF {
		return 0, 0, fmt.Errorf("the password of the secret key takes %d bytes of memory, expected at most %d", max(mem, ops), mostKDF)
	}
	log := max(bits.Len64(min(mem/(scryptR*128), ops/(scryptR*4))/2), 1)
	return 1 << log, max(int(ops/(scryptR*4)>>log), 1), nil
}

// SignOnly returns the line of a file of a signature that signs a message alone.
func (s Secret) SignOnly(message []byte) string {
	sum := blake2b.Sum512(message)
	return encode([]byte(hashedAlg), s.Key[idAt:afterID], ed25519.Sign(s.of, sum[:]))
}

// Sign returns a file that signs a message together with a comment of one line.
func (s Secret) Sign(message []byte, comment string) []byte {
	only := s.SignOnly(message)
	one, _ := decode(only, hashedAlg, sigLen)
	all := ed25519.Sign(s.of, append(one[afterID:], comment...))
	return fmt.Appendf(nil, "%ssignature by holdall\n%s\n%s%s\n%s\n", untrusted, only, trusted, comment, encode(all))
}

// A Signature is what a file of a signature has. Its comment is not proven before it is verified.
type Signature struct {
	Comment string

	one []byte // of the message, with the key's ID
	all []byte // of that and the comment
}

const sigLen = afterID + ed25519.SignatureSize

var errSignature = errors.New("not a signature of minisign")

// ParseSignature reads the file of a signature.
func ParseSignature(file []byte) (s Signature, err error) {
	lines := linesOf(file)
	if len(lines) != 4 || !strings.HasPrefix(lines[0], untrusted) {
		return s, errSignature
	}
	one, ok := decode(lines[1], hashedAlg, sigLen)
	comment, has := strings.CutPrefix(lines[2], trusted)
	all, err := base64.StdEncoding.Strict().DecodeString(lines[3])
	if err != nil || !ok || !has || len(all) != ed25519.SignatureSize {
		return s, errSignature
	}
	return Signature{comment, one, all}, nil
}

// VerifyOnly verifies what SignOnly has returned.
func VerifyOnly(line string, message []byte, keys []Key) error {
	one, ok := decode(line, hashedAlg, sigLen)
	if !ok {
		return errSignature
	}
	_, err := Signature{one: one}.Verify(message, keys)
	return err
}

// ErrKey means that a signature is of none of the keys.
var ErrKey = errors.New("signed with another key")

// Verify returns which of the keys has signed the message and the comment of s.
func (s Signature) Verify(message []byte, keys []Key) (Key, error) {
	sum := blake2b.Sum512(message)
	for _, k := range keys {
		if !bytes.Equal(k[idAt:afterID], s.one[idAt:afterID]) {
			continue
		}
		of, sig := ed25519.PublicKey(k[afterID:]), s.one[afterID:]
		if !ed25519.Verify(of, sum[:], sig) || s.all != nil && !ed25519.Verify(of, slices.Concat(sig, []byte(s.Comment)), s.all) {
			return k, fmt.Errorf("the signature by key %s is wrong", k.ID())
		}
		return k, nil
	}
	return Key{}, fmt.Errorf("%w, %s", ErrKey, idText(s.one))
}

// linesOf splits a file into lines. It returns none of a file that is too long.
func linesOf(b []byte) []string {
	if len(b) > MaxFile {
		return nil
	}
	return strings.Split(strings.ReplaceAll(strings.TrimRight(string(b), "\r\n"), "\r\n", "\n"), "\n")
}

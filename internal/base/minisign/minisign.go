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
)

// A Key is a public key.
type Key struct {
	id [8]byte
	of [ed25519.PublicKeySize]byte
}

func (k Key) String() string {
	return base64.StdEncoding.EncodeToString(bytes.Join([][]byte{[]byte(signAlg), k.id[:], k.of[:]}, nil))
}

// ID is the number that minisign prints for a key.
func (k Key) ID() string { return idText(k.id) }

func idText(id [8]byte) string { return fmt.Sprintf("%016X", binary.LittleEndian.Uint64(id[:])) }

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
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 2+len(k.id)+len(k.of) || string(raw[:2]) != signAlg {
		return k, errors.New("not a public key of minisign")
	}
	copy(k.id[:], raw[2:])
	copy(k.of[:], raw[2+len(k.id):])
	return k, nil
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
	id [8]byte
	of ed25519.PrivateKey
}

// NewSecret makes a secret key.
func NewSecret() (Secret, error) {
	_, of, err := ed25519.GenerateKey(nil)
	s := Secret{of: of}
	rand.Read(s.id[:])
	return s, err
}

// Public returns the public key.
func (s Secret) Public() Key {
	k := Key{id: s.id}
	copy(k.of[:], s.of.Public().(ed25519.PublicKey))
	return k
}

// A file of a secret key has these bytes in base64; the last three fields are encrypted.
const (
	kdfAt    = 2                       // algorithm
	sumAlgAt = 4                       // of the checksum
	saltAt   = 6                       // 32 bytes
	opsAt    = 38                      // u64
	memAt    = 46                      // u64
	idAt     = 54                      // 8 bytes
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
	copy(b[idAt:], s.id[:])
	copy(b[secretAt:], s.of)
	return fmt.Appendf(nil, "%sminisign secret key %s, without a password\n%s\n", untrusted, idText(s.id), base64.StdEncoding.EncodeToString(b))
}

func keySum(b []byte) [blake2b.Size256]byte {
	return blake2b.Sum256(append(bytes.Clone(b[:kdfAt]), b[idAt:sumAt]...))
}

// ErrPassword means that a secret key is encrypted, and the password is missing or wrong.
var ErrPassword = errors.New("the secret key is encrypted")

// ParseSecret reads the file of a secret key, which may be encrypted with a password.
func ParseSecret(file []byte, password string) (s Secret, err error) {
	bad := errors.New("not a secret key of minisign")
	lines := linesOf(file)
	if len(lines) < 2 {
		return s, bad
	}
	b, err := base64.StdEncoding.Strict().DecodeString(lines[1])
	if err != nil || len(b) != fileLen || string(b[:kdfAt]) != signAlg || string(b[sumAlgAt:saltAt]) != "B2" {
		return s, bad
	}
	switch string(b[kdfAt:sumAlgAt]) {
	case "\x00\x00":
	case kdf:
		if password == "" {
			return s, ErrPassword
		}
		n, p, err := scryptOf(binary.LittleEndian.Uint64(b[opsAt:]), binary.LittleEndian.Uint64(b[memAt:]))
		if err != nil {
			return s, err
		}
		stream, err := scrypt.Key([]byte(password), b[saltAt:opsAt], n, scryptR, p, fileLen-idAt)
		if err != nil {
			return s, err
		}
		subtle.XORBytes(b[idAt:], b[idAt:], stream)
		if sum := keySum(b); subtle.ConstantTimeCompare(sum[:], b[sumAt:]) == 0 {
			return s, fmt.Errorf("%w, and this is not its password", ErrPassword)
		}
	default:
		return s, bad
	}
	copy(s.id[:], b[idAt:])
	s.of = ed25519.PrivateKey(b[secretAt:sumAt])
	if !bytes.Equal(ed25519.NewKeyFromSeed(s.of.Seed()), s.of) {
		return s, errors.New("the secret key is damaged")
	}
	return s, nil
}

const scryptR = 8

// scryptOf chooses the parameters of scrypt as libsodium does for its limits.
func scryptOf(ops, mem uint64) (n, p int, err error) {
	ops = max(ops, 32768)
	if mem > mostKDF || ops > mostKDF {
		return 0, 0, fmt.Errorf("the password of the secret key takes %d bytes of memory, expected at most %d", max(mem, ops), mostKDF)
	}
	most, rounds := mem/(scryptR*128), uint64(0)
	if ops < mem/32 {
		most, rounds = ops/(scryptR*4), 1
	}
	log := 1
	for uint64(1)<<log <= most/2 {
		log++
	}
	if rounds == 0 {
		rounds = ops / 4 >> log / scryptR
	}
	return 1 << log, int(max(rounds, 1)), nil
}

// SignOnly returns the line of a file of a signature that signs a message alone.
func (s Secret) SignOnly(message []byte) string {
	sum := blake2b.Sum512(message)
	return base64.StdEncoding.EncodeToString(slices.Concat([]byte(hashedAlg), s.id[:], ed25519.Sign(s.of, sum[:])))
}

// Sign returns a file that signs a message together with a comment of one line.
func (s Secret) Sign(message []byte, comment string) []byte {
	only := s.SignOnly(message)
	sig, _ := parseOnly(only)
	all := ed25519.Sign(s.of, append(sig.sig, comment...))
	return fmt.Appendf(nil, "%ssignature by holdall\n%s\n%s%s\n%s\n", untrusted, only, trusted, comment, base64.StdEncoding.EncodeToString(all))
}

// A Signature is what a file of a signature has. Its comment is not proven before it is verified.
type Signature struct {
	Comment string

	id       [8]byte
	sig, all []byte
}

// KeyID is that of the key which has signed.
func (s Signature) KeyID() string { return idText(s.id) }

// ParseSignature reads the file of a signature.
func ParseSignature(file []byte) (s Signature, err error) {
	bad := errors.New("not a signature of minisign")
	lines := linesOf(file)
	if len(lines) != 4 || !strings.HasPrefix(lines[0], untrusted) {
		return s, bad
	}
	s, ok1 := parseOnly(lines[1])
	all, err := base64.StdEncoding.Strict().DecodeString(lines[3])
	comment, ok2 := strings.CutPrefix(lines[2], trusted)
	if err != nil || !ok1 || !ok2 || len(all) != ed25519.SignatureSize {
		return Signature{}, bad
	}
	s.Comment, s.all = comment, all
	return s, nil
}

func parseOnly(line string) (s Signature, ok bool) {
	raw, err := base64.StdEncoding.Strict().DecodeString(line)
	if err != nil || len(raw) != 2+len(s.id)+ed25519.SignatureSize || string(raw[:2]) != hashedAlg {
		return s, false
	}
	copy(s.id[:], raw[2:])
	s.sig = raw[2+len(s.id):]
	return s, true
}

// VerifyOnly verifies what SignOnly has returned.
func VerifyOnly(line string, message []byte, keys []Key) error {
	s, ok := parseOnly(line)
	if !ok {
		return errors.New("not a signature of minisign")
	}
	_, err := s.verify(message, keys, false)
	return err
}

// ErrKey means that a signature is of none of the keys.
var ErrKey = errors.New("signed with another key")

// Verify returns which of the keys has signed the message and the comment of s.
func (s Signature) Verify(message []byte, keys []Key) (Key, error) {
	return s.verify(message, keys, true)
}

func (s Signature) verify(message []byte, keys []Key, comment bool) (Key, error) {
	sum := blake2b.Sum512(message)
	for _, k := range keys {
		if k.id != s.id {
			continue
		}
		if !ed25519.Verify(k.of[:], sum[:], s.sig) || comment && !ed25519.Verify(k.of[:], append(bytes.Clone(s.sig), s.Comment...), s.all) {
			return k, fmt.Errorf("the signature by key %s is wrong", k.ID())
		}
		return k, nil
	}
	return Key{}, fmt.Errorf("%w, %s", ErrKey, s.KeyID())
}

// linesOf splits a file into lines. It returns none of a file that is too long.
func linesOf(b []byte) []string {
	if len(b) > MaxFile {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(b), "\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

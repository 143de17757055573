package zip

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// An entry may be encrypted in one of two ways:
//
//	ZipCrypto  12 bytes, the last of them known; the content
//	AES        8, 12 or 16 bytes of salt; 2 bytes that are known; the content; 10 bytes of HMAC-SHA1
//
// Others are not supported.
const (
	aesMethod   = 99
	aesTag      = 10
	aesKnown    = 2
	cryptoHead  = 12
	flagStrong  = 1 << 6
	costOfALock = 400 // memory of an entry that is decrypted
)

// lock is how an entry is encrypted, and what decrypts it.
type lock struct {
	strength int  // of AES: 1, 2 or 3; 0 means ZipCrypto
	known    byte // of ZipCrypto
	mu       sync.Mutex
	open     store.Object // the decrypted bytes; nil until they are needed
}

// lockOf returns the lock of an entry, or nil if its kind is not supported.
func lockOf(r *row) *lock {
	if r.flags&flagStrong != 0 || r.method == aesMethod && (r.strength < 1 || r.strength > 3) {
		return nil
	}
	return &lock{strength: r.strength, known: r.known}
}

// around returns how many bytes are before the content, and after it.
func (l *lock) around() (before, after int64) {
	if l.strength == 0 {
		return cryptoHead, 0
	}
	return int64(4+4*l.strength) + aesKnown, aesTag
}

// decryptedName is what the decrypted bytes of an entry are called as an object, which no store has.
func (r *reader) decryptedName(i int) string { return fmt.Sprintf("%s, decrypted: %d", r.name, i) }

// decrypted is the inverse of decryptedName. It returns nil if the entry was not decrypted.
func (r *reader) decrypted(name string) store.Object {
	number, ok := strings.CutPrefix(name, r.name+", decrypted: ")
	i, err := strconv.Atoi(number)
	if l := r.locks[i]; ok && err == nil && l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.open
	}
	return nil
}

// unlock returns the decrypted bytes of an entry. First it makes sure that the password is right and
// the content sound, so that wrong bytes are never returned.
func (r *reader) unlock(ctx context.Context, i int, p *item, l *lock) (store.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		return l.open, nil
	}
	off, err := r.contentOff(ctx, p)
	if err != nil {
		return nil, err
	}
	before, after := l.around()
	v := view{in: r.obj, off: off + before, n: p.stored - before - after}
	if v.n < 0 {
		return nil, r.corruptItem(p, format.BadIndex, p.off, "%d bytes stored: too few for an encrypted content", p.stored)
	}
	head := make([]byte, before)
	if err := r.obj.ReadAt(ctx, head, off); err != nil {
		return nil, err
	}
	wrong := func() error {
		c := r.corruptItem(p, format.BadData, off, "the password is wrong")
		c.Class = "wrong-password"
		return c
	}
	unsound := r.corruptItem(p, format.BadChecksum, off, "it does not match its checksum: the password is wrong, or the content is damaged")
	in := &kit.RangeReader{Ctx: ctx, Object: r.obj, Off: v.off, End: v.off + v.n}
	if l.strength > 0 {
		size := 8 + 8*l.strength
		keys, err := pbkdf2.Key(sha1.New, r.password, head[:before-aesKnown], 1000, 2*size+aesKnown)
		if err != nil {
			return nil, err
		}
		if string(keys[2*size:]) != string(head[before-aesKnown:]) {
			return nil, wrong()
		}
		block, err := aes.NewCipher(keys[:size])
		if err != nil {
			return nil, err
		}
		var tag [aesTag]byte
		if err := r.obj.ReadAt(ctx, tag[:], v.off+v.n); err != nil {
			return nil, err
		}
		mac := hmac.New(sha1.New, keys[size:2*size])
		if _, err := io.CopyBuffer(mac, in, make([]byte, room(v.n)+1)); err != nil {
			return nil, err
		}
		if !hmac.Equal(mac.Sum(nil)[:aesTag], tag[:]) {
			return nil, unsound
		}
		l.open = &aesView{v, block}
		return l.open, nil
	}
	keys := newCryptoKeys(r.password)
	if keys.decrypt(head); head[cryptoHead-1] != l.known {
		return nil, wrong()
	}
	o := &cryptoView{view: v, states: []cryptoKeys{keys}}
	in = &kit.RangeReader{Ctx: ctx, Object: o, End: v.n}
	var content io.Reader = bufio.NewReaderSize(in, room(v.n)+1)
	if p.method != stored {
		z, _ := codec.Lookup(p.codec())
		d, err := z.Decode(content)
		if err != nil {
			return nil, unsound
		}
		defer d.Close()
		content = d
	}
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, io.LimitReader(content, p.size))
	switch {
	case in.Err != nil:
		return nil, in.Err
	case err != nil || n != p.size || sum.Sum32() != p.crc:
		return nil, unsound
	}
	l.open = o
	return o, nil
}

// view is a range of an object.
type view struct {
	in     store.Object
	off, n int64
}

func (v *view) read(ctx context.Context, b []byte, off int64) error {
	if off < 0 || off > v.n-int64(len(b)) {
		return io.ErrUnexpectedEOF
	}
	return v.in.ReadAt(ctx, b, v.off+off)
}

func (v *view) Info(ctx context.Context) (store.Info, error) {
	info, err := v.in.Info(ctx)
	info.Size = v.n
	return info, err
}

func (v *view) Close() error { return nil } // the archive's object is the reader's

// aesView decrypts AES in counter mode. The counter begins with 1 and is little-endian.
type aesView struct {
	view
	block cipher.Block
}

func (v *aesView) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (v *aesView) ReadAt(ctx context.Context, b []byte, off int64) error {
	if err := v.read(ctx, b, off); err != nil {
		return err
	}
	var count, key [aes.BlockSize]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(count[:], uint64(off/aes.BlockSize)+1)
		v.block.Encrypt(key[:], count[:])
		n := 0
		for i := off % aes.BlockSize; i < aes.BlockSize && n < len(b); i++ {
			b[n] ^= key[i]
			n++
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// cryptoKeys is the state of ZipCrypto. Each byte depends on all before it.
type cryptoKeys [3]uint32

func newCryptoKeys(password string) cryptoKeys {
	k := cryptoKeys{0x12345678, 0x23456789, 0x34567890}
	for i := range len(password) {
		k.update(password[i])
	}
	return k
}

func (k *cryptoKeys) update(b byte) {
	k[0] = crc32.IEEETable[byte(k[0])^b] ^ k[0]>>8
	k[1] = (k[1]+k[0]&0xff)*134775813 + 1
	k[2] = crc32.IEEETable[byte(k[2])^byte(k[1]>>24)] ^ k[2]>>8
}

func (k *cryptoKeys) decrypt(b []byte) {
	for i := range b {
		t := uint16(k[2]) | 2
		b[i] ^= byte(t * (t ^ 1) >> 8)
		k.update(b[i])
	}
}

// cryptoView decrypts ZipCrypto. It remembers the state each cryptoStep bytes.
type cryptoView struct {
	view
	mu     sync.Mutex
	states []cryptoKeys
}

const cryptoStep = 1 << 20

func (v *cryptoView) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (v *cryptoView) ReadAt(ctx context.Context, b []byte, off int64) error {
	if err := v.read(ctx, b, off); err != nil { // also checks the range
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	from := min(off/cryptoStep, int64(len(v.states))-1)
	k, at, buf := v.states[from], from*cryptoStep, make([]byte, 64<<10)
	for at < off+int64(len(b)) {
		n := min(int64(len(buf)), cryptoStep-at%cryptoStep)
		var part []byte
		if at < off { // only the state after these bytes is needed
			part = buf[:min(n, off-at)]
			if err := v.read(ctx, part, at); err != nil {
				return err
			}
		} else {
			part = b[at-off:][:min(n, off+int64(len(b))-at)]
		}
		k.decrypt(part)
		if at += int64(len(part)); at == int64(len(v.states))*cryptoStep {
			v.states = append(v.states, k)
		}
	}
	return nil
}

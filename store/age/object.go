package age

import (
	"bytes"
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"filippo.io/age"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	page     = 64 << 10
	tag      = chacha20poly1305.Overhead
	sealed   = page + tag // a page as it is stored
	nonceLen = 16

	frontLen  = 8 << 10 // the first read, in which headers with some recipients are
	mostFront = 2<<20 + nonceLen
	intro     = "age-encryption.org/"
	opDecrypt = "decrypt"
)

type object struct {
	st   *Store
	name string
	in   store.Object
	mu   sync.Mutex // held while the header is read
	lay  atomic.Pointer[layout]
	kept atomic.Pointer[plainPage] // which readers take, and give back
}

// A plainPage is the last page that was read in part, so that the next range decrypts it no second time.
type plainPage struct {
	number int64
	b      [page]byte
}

// A layout says where the pages are.
type layout struct {
	info   store.Info // as it is decrypted
	start  int64      // where the first page begins
	last   int64      // number of the last page
	stored int64      // size of what is stored
	aead   cipher.AEAD
	front  run
}

// A run is what was read before.
type run struct {
	off int64
	b   []byte
}

// fail returns an error about n bytes at an offset, or about all of the object if that is -1.
func (o *object) fail(off, n int64, err error) error {
	return &store.Error{Op: opDecrypt, Name: o.name, Off: off, Len: n, Err: err}
}

// damaged returns an error with a text, which may have been stored and is cut short.
func damaged(text string, a ...any) error {
	line, _, _ := strings.Cut(fmt.Sprintf(text, a...), "\n")
	return fmt.Errorf("%w: %s", storekit.ErrDamaged, line[:min(len(line), 250)])
}

// header reads the beginning of an object.
func (o *object) header(ctx context.Context) (front, header []byte, err error) {
	for size := frontLen; ; size = min(8*size, mostFront) {
		front = make([]byte, size)
		n, err := storekit.ReadHead(ctx, o.in, front)
		if err != nil {
			return nil, nil, err
		}
		front = front[:n]
		header, err = age.ExtractHeader(bytes.NewReader(front))
		switch {
		case err == nil && len(header)+nonceLen <= n:
			return front, header, nil
		case n == size && size < mostFront && (err == nil || errors.Is(err, io.EOF)):
			continue
		case n == 0 || !bytes.HasPrefix(front, []byte(intro[:min(n, len(intro))])):
			err = errors.New("it is not encrypted by age, or as text (--armor), or its beginning is damaged: leave out age: if it is plain")
		case err == nil || errors.Is(err, io.EOF):
			err = damaged("it is truncated in its header")
		default:
			err = damaged("its header: %v", err)
		}
		return nil, nil, o.fail(-1, 0, err)
	}
}

// cipher returns what decrypts the pages of an object with a header and a nonce.
func (k *Keys) cipher(header, nonce []byte) (cipher.AEAD, error) {
	key, err := k.unwrap(header)
	if err != nil {
		return nil, err
	}
	if key, err = hkdf.Key(sha256.New, key, nonce, "payload", chacha20poly1305.KeySize); err != nil {
		return nil, err
	}
	return chacha20poly1305.New(key)
}

// unwrap returns the key of an object with a header.
func (k *Keys) unwrap(header []byte) ([]byte, error) {
	if key, ok := known.Load(k.phrase + string(header)); ok {
		return key.([]byte), nil
	}
	if len(k.Identities) == 0 {
		return nil, noKey("it is encrypted: set " + identityVar + " to a file with the secret key, or " + passphraseVar + " to one with the passphrase")
	}
	key, err := age.DecryptHeader(header, k.Identities...)
	if none, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		to := strings.Join(none.StanzaTypes, ", ")
		return nil, noKey("no key of " + identityVar + " or " + passphraseVar + " fits: it is encrypted to others (" + to[:min(len(to), 99)] + "), or its header is damaged")
	}
	if err != nil {
		return nil, damaged("its header: %v", err)
	}
	if k.phrase != "" && bytes.Contains(header, []byte("\n-> scrypt ")) {
		known.Store(k.phrase+string(header), key)
	}
	return key, nil
}

// sizes returns how long the contents of stored pages are, and the number of the last page. A page without
// contents is none, unless it is the only one.
func sizes(stored int64) (size, last int64) {
	last = max(stored-tag-1, 0) / sealed
	return max(min((last+1)*sealed, stored)-(last+1)*tag, 0), last
}

// layout reads the header, once.
func (o *object) layout(ctx context.Context) (*layout, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.lay.Load(); l != nil {
		return l, ctx.Err()
	}
	front, header, err := o.header(ctx)
	if err != nil {
		return nil, err
	}
	l := &layout{start: int64(len(header)) + nonceLen, front: run{0, front}}
	if l.info, err = o.in.Info(ctx); err != nil {
		return nil, err
	}
	l.stored = l.info.Size
	l.info.Size, l.last = sizes(l.stored - l.start)
	if l.aead, err = o.st.keys.cipher(header, front[len(header):l.start]); err == nil && l.stored-l.start < tag {
		err = damaged("it is truncated in its first page")
	}
	if err != nil {
		return nil, o.fail(-1, 0, err)
	}
	if l.info.Size == 0 { // nobody else would find out whether that is right
		err = o.pages(ctx, l, nil, 0, run{})
	}
	if err == nil {
		o.lay.Store(l)
	}
	return l, err
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// pages fills p from an offset on.
func (o *object) pages(ctx context.Context, l *layout, p []byte, off int64, end run) error {
	part := o.kept.Swap(nil)
	if part == nil {
		part = &plainPage{number: -1}
	}
	defer o.kept.Store(part)
	if off/page == part.number {
		n := copy(p, part.b[off%page:])
		if p, off = p[n:], off+int64(n); len(p) == 0 {
			return nil
		}
	}
	first, last := off/page, (off+max(int64(len(p)), 1)-1)/page
	at := l.start + first*sealed
	n := int(min(l.start+(last+1)*sealed, l.stored) - at)
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := slices.Grow((*buffer)[:0], n)[:n]
	*buffer = b
	if err := o.read(ctx, b, at, l.front, end); err != nil {
		return err
	}
	for i := first; i <= last; i++ {
		c := b[:min(sealed, len(b))]
		b = b[len(c):]
		skip, n, to := max(off-i*page, 0), len(c)-tag, p
		whole := skip == 0 && len(p) >= n
		if !whole {
			part.number, to = -1, part.b[:]
		}
		if err := o.open(ctx, l, i, to[:0], c); err != nil {
			return err
		}
		if !whole {
			part.number, n = i, copy(p, part.b[skip:])
		}
		p = p[n:]
	}
	return nil
}

// read fills b with what is stored at an offset.
func (o *object) read(ctx context.Context, b []byte, at int64, before ...run) error {
	for _, r := range before {
		if skip := at - r.off; skip >= 0 && skip <= int64(len(r.b)-len(b)) {
			copy(b, r.b[skip:])
			return nil
		}
	}
	return o.in.ReadAt(ctx, b, at)
}

// nonce returns the nonce of a page.
func nonce(n int64, last bool) []byte {
	b := make([]byte, chacha20poly1305.NonceSize)
	binary.BigEndian.PutUint64(b[3:], uint64(n))
	if last {
		b[11] = 1
	}
	return b
}

// open appends the content of a page to a slice that has room for it. If the page is damaged, it is that of the
// healed one, or the error says what is wrong.
func (o *object) open(ctx context.Context, l *layout, n int64, to, c []byte) (err error) {
	at, own := l.start+n*sealed, nonce(n, n == l.last)
	if n < l.last || l.stored <= at+sealed { // otherwise too few bytes for a page follow it
		if _, err := l.aead.Open(to, own, c, nil); err == nil {
			return nil
		}
		if o.st.heal != nil {
			b := make([]byte, len(c))
			if st := o.st.heal(ctx); st != nil && storekit.Briefly(st, o.name).ReadAt(ctx, b, at) == nil {
				if _, err = l.aead.Open(to, own, b, nil); err == nil {
					return nil
				}
			}
		}
	}
	err = damaged("the page of %d bytes at %d of what is stored does not decrypt", len(c), at)
	if _, cut := l.aead.Open(to, nonce(n, false), c, nil); cut == nil {
		err = damaged("it is truncated: pages are missing at %d of what is stored", at+int64(len(c)))
	} else if _, over := l.aead.Open(to, nonce(n, true), c, nil); over == nil {
		err = damaged("it goes on after its last page, at %d of what is stored", at+int64(len(c)))
	}
	clear(to[:len(c)-tag])
	return o.fail(n*page, int64(len(c)-tag), err)
}

func (o *object) Info(ctx context.Context) (info store.Info, err error) {
	l, err := o.layout(ctx)
	if err == nil {
		info = l.info
	}
	return info, err
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	l, err := o.layout(ctx)
	if err != nil {
		return err
	}
	if off < 0 || off > l.info.Size-int64(len(p)) {
		return &store.Error{Op: "read", Name: o.name, Off: off, Len: int64(len(p)), Err: io.ErrUnexpectedEOF}
	}
	return o.pages(ctx, l, p, off, run{})
}

// Can returns how to read an end. Everything else that the object below has is about what is stored.
func (o *object) Can() store.ObjectAbilities { return store.ObjectAbilities{ReadEnd: o.readEnd} }

// readEnd requests the header and the end at the same time.
func (o *object) readEnd(ctx context.Context, p []byte, tail bool) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	var end run
	var wait sync.WaitGroup
	var failed error
	if below := o.in.Can().ReadEnd; tail && below != nil && o.lay.Load() == nil {
		end.b = make([]byte, (len(p)+2*page-1)/page*sealed) // it may begin within a page
		wait.Go(func() { n, failed = below(ctx, end.b, true) })
	}
	l, err := o.layout(ctx)
	wait.Wait()
	if err = cmp.Or(err, failed); err != nil {
		return 0, err
	}
	end = run{l.stored - int64(n), end.b[:n]}
	n = int(min(int64(len(p)), l.info.Size))
	off := int64(0)
	if tail {
		off = l.info.Size - int64(n)
	}
	return n, o.pages(ctx, l, p[:n], off, end)
}

func (o *object) Close() error {
	o.lay.Store(nil)
	return o.in.Close()
}

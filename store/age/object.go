package age

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	sealed   = page + chacha20poly1305.Overhead // a page as it is stored
	nonceLen = 16

	frontLen  = 8 << 10 // a first read, in which headers with a few recipients are
	mostFront = 2<<20 + nonceLen
	intro     = "age-encryption.org/"
)

// An object is read by pages. Its header is read when it is needed.
type object struct {
	st      *Store
	name    string
	in      store.Object // nil if it is missing
	closed  atomic.Bool
	loading chan struct{} // held while the header is read
	lay     atomic.Pointer[layout]
	kept    kept

	healed atomic.Pointer[object] // read instead, after damage
}

// A layout says where the pages are.
type layout struct {
	info  store.Info // as it is decrypted
	start int64      // where the first page begins
	end   int64      // where the last one ends
	last  int64      // its number
	torn  bool       // bytes follow it, which are too few for a page
	aead  cipher.AEAD
	front run
}

// A run is what was read of an object before.
type run struct {
	off int64
	b   []byte
}

// A kept is the page that was read in part, which the next read may need.
type kept struct {
	sync.Mutex
	n int64 // its number + 1
	b []byte
}

// A work is what a read needs. Works are used again.
type work struct {
	nonce [chacha20poly1305.NonceSize]byte
	b     []byte
}

var works = sync.Pool{New: func() any { return &work{} }}

// mostWork is the longest buffer that is used again.
const mostWork = 4<<20 + 2*sealed

// header reads the beginning of an object, and more bytes if it is read anyway.
func (o *object) header(ctx context.Context, more int) (front, header []byte, err error) {
	for size := frontLen + more; ; size = min(8*size, mostFront) {
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
		case bytes.HasPrefix(front, []byte("-----BEGIN AGE")):
			err = errArmor
		case n == 0 || !bytes.HasPrefix(front, []byte(intro[:min(n, len(intro))])):
			err = errPlain
		case err == nil || errors.Is(err, io.EOF):
			err = &fault{what: "it is truncated in its header"}
		default:
			err = &fault{"its header is damaged", err}
		}
		return nil, nil, o.failed(err)
	}
}

// What is stored may be no file of age.
var (
	errArmor = errors.New("it is encrypted as text, which cannot be read in part: encrypt it without --armor")
	errPlain = errors.New("it is not encrypted by age, or its beginning is damaged: leave out age: if it is plain")
)

// A fault is damage of what is stored. It matches [store.ErrDamaged].
type fault struct {
	what  string
	cause error
}

func (e *fault) Is(target error) bool { return target == store.ErrDamaged }

func (e *fault) Error() string {
	if e.cause == nil {
		return e.what
	}
	return e.what + ": " + short(e.cause.Error())
}

// short returns the beginning of a text that has something of what is stored in it.
func short(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line[:min(len(line), 200)]
}

// failed returns an error of all of an object.
func (o *object) failed(err error) error {
	return &store.Error{Op: "decrypt", Name: o.name, Off: -1, Err: err}
}

// sizes returns, for all pages with their tags, how long their contents are, the number of the last page, and
// how many bytes they take. A page of which no content is left is not one.
func sizes(stored int64) (size, last, end int64) {
	last = max(stored-1, 0) / sealed
	rest := stored - last*sealed
	if rest <= chacha20poly1305.Overhead && last > 0 {
		last, rest = last-1, sealed
	}
	return last*page + max(rest-chacha20poly1305.Overhead, 0), last, last*sealed + rest
}

// layout returns where the pages are. It requests the beginning of the object, once.
func (o *object) layout(ctx context.Context, more int) (*layout, error) {
	if o.closed.Load() {
		return nil, &store.Error{Op: "read", Name: o.name, Off: -1, Err: fs.ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l := o.lay.Load(); l != nil {
		return l, nil
	}
	select {
	case o.loading <- struct{}{}:
		defer func() { <-o.loading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l := o.lay.Load(); l != nil {
		return l, nil
	}
	front, header, err := o.header(ctx, more)
	if err != nil {
		return nil, err
	}
	l := &layout{start: int64(len(header)) + nonceLen, front: run{0, front}}
	if l.info, err = o.in.Info(ctx); err != nil {
		return nil, err
	}
	key, err := o.st.keys.unwrap(header)
	if err != nil {
		return nil, o.failed(err)
	}
	if key, err = hkdf.Key(sha256.New, key, front[len(header):l.start], "payload", chacha20poly1305.KeySize); err != nil {
		return nil, err
	}
	if l.aead, err = chacha20poly1305.New(key); err != nil {
		return nil, err
	}
	stored := l.info.Size - l.start
	if stored < chacha20poly1305.Overhead {
		return nil, o.failed(&fault{what: "it is truncated in its first page"})
	}
	l.info.Size, l.last, l.end = sizes(stored)
	l.end += l.start
	l.torn = l.end < l.start+stored
	// That there is nothing is proven now, since nobody reads it. What may be healed is so before its
	// length is told, if that takes no request.
	if l.info.Size == 0 || o.st.heal != nil && o.st.below.Can().Near {
		if err := o.pages(ctx, l, nil, l.info.Size, l.last, run{}); err != nil {
			return nil, err
		}
	}
	o.lay.Store(l)
	return l, nil
}

// fetch fills b with stored bytes.
func (o *object) fetch(ctx context.Context, b []byte, off int64, from ...run) error {
	for _, r := range from {
		if at := off - r.off; at >= 0 && at <= int64(len(r.b)-len(b)) {
			copy(b, r.b[at:])
			return nil
		}
	}
	return o.in.ReadAt(ctx, b, off)
}

// pages fills p from an offset on that lies in the pages up to last.
func (o *object) pages(ctx context.Context, l *layout, p []byte, off, last int64, held run) error {
	first := min(off/page, last)
	if first == last && o.kept.read(p, first, off) {
		return nil
	}
	at := l.start + first*sealed
	n := int(min(l.start+(last+1)*sealed, l.end) - at)
	w := works.Get().(*work)
	defer func() {
		if cap(w.b) <= mostWork {
			works.Put(w)
		}
	}()
	if cap(w.b) < n {
		w.b = make([]byte, n)
	}
	b := w.b[:n]
	if err := o.fetch(ctx, b, at, held, l.front); err != nil {
		return err
	}
	for i := first; i <= last; i++ {
		c := b[:min(sealed, len(b))]
		b = b[len(c):]
		to, skip := c[:0], max(off-i*page, 0)
		whole := skip == 0 && len(c)-chacha20poly1305.Overhead <= len(p) && len(p) > 0
		if whole {
			to = p[:0]
		}
		plain, err := l.aead.Open(to, w.at(i, i == l.last), c, nil)
		if err != nil || i == l.last && l.torn {
			return o.broken(ctx, l, i)
		}
		if whole {
			p = p[len(plain):]
			continue
		}
		o.kept.keep(i, plain)
		p = p[copy(p, plain[skip:]):]
	}
	return nil
}

// at returns the nonce of a page.
func (w *work) at(n int64, last bool) []byte {
	binary.BigEndian.PutUint64(w.nonce[3:], uint64(n))
	w.nonce[11] = 0
	if last {
		w.nonce[11] = 1
	}
	return w.nonce[:]
}

func (k *kept) read(p []byte, n, off int64) bool {
	k.Lock()
	defer k.Unlock()
	return k.n == n+1 && copy(p, k.b[off-n*page:]) == len(p)
}

func (k *kept) keep(n int64, plain []byte) {
	k.Lock()
	defer k.Unlock()
	k.n, k.b = n+1, append(k.b[:0], plain...)
}

// broken says what is wrong with a page.
func (o *object) broken(ctx context.Context, l *layout, n int64) error {
	at := l.start + n*sealed
	b := make([]byte, min(sealed, l.end-at))
	if err := o.in.ReadAt(ctx, b, at); err != nil {
		return err
	}
	what := fmt.Sprintf("the page of %d bytes at %d of what is stored does not match its key", len(b), at)
	for last, other := range map[bool]string{false: "it is truncated: there were pages after %d of what is stored", true: "it goes on after its last page, at %d of what is stored"} {
		if _, err := l.aead.Open(nil, new(work).at(n, last), b, nil); err == nil {
			what = fmt.Sprintf(other, at+int64(len(b)))
		}
	}
	return &store.Error{Op: "decrypt", Name: o.name, Off: n * page, Len: int64(len(b)) - chacha20poly1305.Overhead, Err: &fault{what: what}}
}

// whole calls do with an object that reads o. If that fails because of damage, it is called again
// with the healed object, if there is one.
func (o *object) whole(ctx context.Context, do func(*object) error) error {
	if healed := o.healed.Load(); healed != nil {
		return do(healed)
	}
	err := do(o)
	if err != nil {
		if healed := o.cure(ctx, err); healed != nil {
			if do(healed) != nil {
				return errors.Join(err, healed.Close())
			}
			if !o.healed.CompareAndSwap(nil, healed) {
				return healed.Close()
			}
			return nil
		}
	}
	return err
}

// cure returns the object as it was before an error, or nil if the error is none of what is stored.
func (o *object) cure(ctx context.Context, err error) *object {
	if o.st.heal == nil || ctx.Err() != nil || storekit.Temporary(err) || errors.Is(err, fs.ErrNotExist) && !o.st.below.Can().Near {
		return nil
	}
	for _, other := range []error{store.ErrChanged, fs.ErrClosed, io.ErrUnexpectedEOF} {
		if errors.Is(err, other) {
			return nil
		}
	}
	st := o.st.heal(ctx)
	if st == nil {
		return nil
	}
	healed, err := (&Store{below: st, keys: o.st.keys}).Open(ctx, o.name)
	if err != nil {
		return nil
	}
	return healed.(*object)
}

func (o *object) Info(ctx context.Context) (info store.Info, err error) {
	err = o.whole(ctx, func(o *object) error {
		l, err := o.layout(ctx, 0)
		if err == nil {
			info = l.info
		}
		return err
	})
	return info, err
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	return o.whole(ctx, func(o *object) error {
		l, err := o.layout(ctx, 0)
		if err != nil {
			return err
		}
		if off < 0 || off > l.info.Size-int64(len(p)) {
			return &store.Error{Op: "read", Name: o.name, Off: off, Len: int64(len(p)), Err: io.ErrUnexpectedEOF}
		}
		return o.pages(ctx, l, p, off, (off+int64(len(p))-1)/page, run{})
	})
}

// Can returns the abilities to read: what else the object below has is of what is stored.
func (o *object) Can() store.ObjectAbilities { return store.ObjectAbilities{ReadEnd: o.readEnd} }

// readEnd reads an end. For one at the end, the header is requested at the same time.
func (o *object) readEnd(ctx context.Context, p []byte, tail bool) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	some := (len(p) + page - 1) / page * sealed
	err = o.whole(ctx, func(o *object) error {
		var end run
		var both sync.WaitGroup
		var failed error
		more := some
		if tail {
			more = 0
		}
		if tail && o.lay.Load() == nil && o.in.Can().ReadEnd != nil {
			both.Go(func() {
				b := make([]byte, some+sealed) // the end may begin within a page
				n, err := storekit.ReadTail(ctx, o.in, b)
				end.b, failed = b[:n], err
			})
		}
		l, err := o.layout(ctx, more)
		both.Wait()
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		if end.b != nil {
			info, err := o.in.Info(ctx)
			if err != nil {
				return err
			}
			end.off = info.Size - int64(len(end.b))
		}
		off := int64(0)
		n = int(min(int64(len(p)), l.info.Size))
		if tail {
			off = l.info.Size - int64(n)
		}
		return o.pages(ctx, l, p[:n], off, max(off+int64(n)-1, 0)/page, end)
	})
	return n, err
}

func (o *object) Close() error {
	o.closed.Store(true)
	var err error
	if healed := o.healed.Load(); healed != nil {
		err = healed.Close()
	}
	if o.in == nil {
		return err
	}
	return errors.Join(err, o.in.Close())
}

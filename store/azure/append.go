package azure

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const appendBlock = 4 * mib

// Append adds p to the end of an append blob that is at bytes long. If at is 0, it creates the
// blob if it does not exist.
func (st *Store) Append(ctx context.Context, name string, p []byte, at int64) error {
	key, err := st.key(name)
	if err != nil {
		return st.fail("append", name, err)
	}
	if at == 0 {
		err := drop(st.do(ctx, call{method: http.MethodPut, url: st.address(key), header: map[string]string{"X-Ms-Blob-Type": "AppendBlob", "If-None-Match": "*"}}))
		if err != nil && !errors.Is(err, errThere) {
			return st.fail("append", name, err)
		}
	}
	for len(p) > 0 {
		n := min(len(p), appendBlock)
		if err := st.appendBlock(ctx, name, key, p[:n], at); err != nil {
			return st.fail("append", name, err)
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

func (st *Store) appendBlock(ctx context.Context, name, key string, p []byte, at int64) error {
	u := st.address(key)
	u.RawQuery = "comp=appendblock"
	err := drop(st.do(ctx, call{method: http.MethodPut, url: u, body: p, header: map[string]string{
		"X-Ms-Blob-Condition-Appendpos": strconv.FormatInt(at, 10), "Content-Md5": sum(p),
	}}))
	if !errors.Is(err, store.ErrChanged) {
		return err
	}
	// If a response is lost, the request may have succeeded and made the blob longer.
	o, info, oerr := storekit.OpenInfo(ctx, st, name)
	if oerr != nil {
		return err
	}
	defer o.Close()
	if info.Size != at+int64(len(p)) {
		return err
	}
	there := make([]byte, len(p))
	if o.ReadAt(ctx, there, at) != nil || !bytes.Equal(there, p) {
		return err
	}
	return nil
}

const leaseSeconds = 60

var leaseRenewed = 15 * time.Second

var errLeased = fmt.Errorf("another program holds its lease: %w", fs.ErrExist)

// refused reports whether err is a refusal with that error code.
func refused(err error, word string) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.what == word
}

// errLeaseLost means that a lease has ended, so the work that needed it must stop.
var errLeaseLost = errors.New("the lease is lost: another program broke it, or it was not renewed in time")

// Lease takes the lease of a blob, which it creates if it does not exist. The lease is renewed
// until release is called, which removes the blob.
func (st *Store) Lease(ctx context.Context, name string) (held context.Context, release func() error, err error) {
	key, err := st.key(name)
	if err == nil {
		err = drop(st.do(ctx, call{method: http.MethodPut, url: st.address(key), header: map[string]string{"X-Ms-Blob-Type": "BlockBlob", "If-None-Match": "*"}}))
		if errors.Is(err, errThere) || errors.Is(err, store.ErrChanged) || refused(err, "LeaseIdMissing") {
			err = nil // the blob exists
		}
	}
	id := leaseID()
	lease := func(ctx context.Context, action string, header map[string]string) error {
		u := st.address(key)
		u.RawQuery = "comp=lease"
		header["X-Ms-Lease-Action"] = action
		return drop(st.do(ctx, call{method: http.MethodPut, url: u, header: header}))
	}
	if err == nil {
		err = lease(ctx, "acquire", map[string]string{"X-Ms-Lease-Duration": strconv.Itoa(leaseSeconds), "X-Ms-Proposed-Lease-Id": id})
		if refused(err, "LeaseAlreadyPresent") {
			err = errLeased
		}
	}
	if err != nil {
		return nil, nil, st.fail("lease", name, err)
	}
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(leaseRenewed)
		defer tick.Stop()
		sure := time.Now().Add(leaseSeconds * time.Second)
		for {
			select {
			case <-done:
				return
			case <-held.Done():
				return
			case begun := <-tick.C:
				once, end := context.WithDeadline(held, sure)
				err := lease(once, "renew", map[string]string{"X-Ms-Lease-Id": id})
				end()
				if err == nil {
					sure = begun.Add(leaseSeconds * time.Second)
				} else if held.Err() == nil {
					cancel(st.fail("lease", name, fmt.Errorf("%w (%w)", errLeaseLost, err)))
					return
				}
			}
		}
	})
	return held, sync.OnceValue(func() error {
		close(done)
		renewing.Wait()
		cancel(nil)
		// If another program has the lease by now, it keeps it.
		err := drop(st.do(context.WithoutCancel(ctx), call{method: http.MethodDelete, url: st.address(key), header: map[string]string{"X-Ms-Lease-Id": id}}))
		return st.fail("lease", name, err)
	}), nil
}

// leaseID returns a UUID.
func leaseID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

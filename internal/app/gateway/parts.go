package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An upload in parts lies beside the catalogue, in BUCKET.uploads. The object ID-begun says of what it is. Each part has
// its content in an object of its own, and a record ID-part-NUMBER that names it, which the next one replaces.
const (
	begunName   = "begun"
	partName    = "part-%05d"
	contentName = "content-"
	finishName  = "finish-" // while an object is made of the parts
	endedName   = "ended"   // see endUpload
	mostBegun   = 1 << 20   // of a record
)

type begun struct {
	Key     []byte            `json:"key"`
	Headers map[string]string `json:"headers,omitempty"`
	Time    time.Time         `json:"time"`
}

type part struct {
	serve.Part
	Object string `json:"object"`
}

var uploadID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[0-9A-Z]{26}$") })

// uploads is what the names of all uploads begin with, or of one.
func (b *bucket) uploads(id ...string) string {
	return b.g.at + b.name + ".uploads/" + strings.Join(append(id, ""), "-")
}

func putJSON(ctx context.Context, st store.Store, name string, v any, wish store.Wishes) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w, err := storekit.CreateAs(ctx, st, name, wish)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err = w.Write(text); err == nil {
		_, err = w.Commit(ctx)
	}
	return err
}

func getJSON(ctx context.Context, st store.Store, name string, v any) error {
	o, err := st.Open(ctx, name)
	if err != nil {
		return err
	}
	defer o.Close()
	text := make([]byte, mostBegun)
	n, err := storekit.ReadHead(ctx, o, text)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case n == len(text):
		return damaged(name, "expected less than a megabyte")
	}
	if err := json.Unmarshal(text[:n], v); err != nil {
		return damaged(name, err.Error())
	}
	return nil
}

// damaged returns the error for a damaged object that a gateway has written.
func damaged(name, what string) error {
	return &format.CorruptError{Format: "gateway", Problem: format.Problem{Code: format.BadData, Severity: format.Error, Volume: name, Off: -1, Message: format.Escape(name) + " is damaged: " + what}}
}

// begun returns an upload that was begun of a key.
func (b *bucket) begun(ctx context.Context, key, id string) (is begun, err error) {
	if !uploadID().MatchString(id) {
		return is, serve.ErrNoUpload
	}
	err = getJSON(ctx, b.book.Store(), b.uploads(id)+begunName, &is)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(is.Key) != key {
		err = serve.ErrNoUpload
	}
	return is, err
}

// Begin implements [serve.Bucket].
func (b *bucket) Begin(ctx context.Context, key string, headers map[string]string) (string, error) {
	id := b.g.o.text()
	return id, putJSON(ctx, b.book.Store(), b.uploads(id)+begunName, begun{[]byte(key), headers, b.g.now()}, store.Wishes{})
}

// Part implements [serve.Bucket].
func (b *bucket) Part(ctx context.Context, key, id string, number int, u *serve.Upload) (done serve.Written, err error) {
	if _, err := b.begun(ctx, key, id); err != nil {
		return done, err
	}
	p := part{Part: serve.Part{Number: number, Size: u.Size, Time: b.g.now()}, Object: contentName + b.g.o.text()}
	if _, err := storekit.Write(ctx, b.book.Store(), b.uploads(id)+p.Object, func(w store.Writer) error {
		n, err := io.Copy(w, u.Body)
		if err == nil && n != u.Size {
			err = io.ErrUnexpectedEOF
		}
		return err
	}); err != nil {
		return done, outward(err)
	}
	p.ETag, p.Headers = u.End()
	var was part
	record := b.uploads(id) + fmt.Sprintf(partName, number)
	if err := getJSON(ctx, b.book.Store(), record, &was); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return done, err
	}
	if err := putJSON(ctx, b.book.Store(), record, p, store.Wishes{}); err != nil {
		return done, err
	}
	if was.Object != "" {
		err = storekit.Remove(ctx, b.book.Store(), b.uploads(id)+path.Base(was.Object))
		if errors.Is(err, fs.ErrNotExist) { // another has replaced the same one
			err = nil
		}
	}
	return serve.Written{Time: p.Time}, errors.Join(err, b.mayAdd(ctx, key, id))
}

// parts returns the parts of an upload by number.
func (b *bucket) parts(ctx context.Context, id string) (all []part, err error) {
	type found struct {
		name string
		part
	}
	var records []*found
	for info, err := range storekit.List(ctx, b.book.Store(), b.uploads(id)) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(info.Name, b.uploads(id)+"part-") {
			records = append(records, &found{name: info.Name})
		}
	}
	err = pipe.Each(ctx, pipe.All(records), 16, func(ctx context.Context, r *found) error { return getJSON(ctx, b.book.Store(), r.name, &r.part) })
	for _, r := range records {
		all = append(all, r.part)
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(a.Number, b.Number) })
	return all, err
}

// Parts implements [serve.Bucket].
func (b *bucket) Parts(ctx context.Context, key, id string) (headers map[string]string, all []serve.Part, err error) {
	is, err := b.begun(ctx, key, id)
	if err != nil {
		return nil, nil, err
	}
	found, err := b.parts(ctx, id)
	for _, p := range found {
		all = append(all, p.Part)
	}
	return is.Headers, all, err
}

// Finish implements [serve.Bucket].
func (b *bucket) Finish(ctx context.Context, key, id string, wanted []serve.Part, u *serve.Upload) (done serve.Written, err error) {
	if _, err := b.begun(ctx, key, id); err != nil {
		return done, err
	}
	finish := b.uploads(id) + finishName + b.g.o.text()
	if err := putJSON(ctx, b.book.Store(), finish, struct{}{}, store.Wishes{}); err != nil {
		return done, err
	}
	defer func() {
		if err != nil { // otherwise discard has removed it
			err = errors.Join(err, b.g.removeOne(ctx, finish))
		}
	}()
	if err := b.mayAdd(ctx, key, id); err != nil {
		return done, err
	}
	found, err := b.parts(ctx, id)
	if err != nil {
		return done, err
	}
	in := &storekit.Pieced{Name: key}
	for _, w := range wanted {
		i, ok := slices.BinarySearchFunc(found, w.Number, func(p part, n int) int { return cmp.Compare(p.Number, n) })
		if !ok || found[i].ETag != w.ETag || found[i].Size != w.Size {
			return done, serve.ErrPart
		}
		o, err := b.book.Store().Open(ctx, b.uploads(id)+path.Base(found[i].Object))
		if errors.Is(err, fs.ErrNotExist) {
			return done, serve.ErrPart // it was replaced
		}
		if err != nil {
			return done, err
		}
		defer o.Close()
		in.Add(o, 0, w.Size)
	}
	done, err = b.put(ctx, key, &serve.Upload{Body: kit.NewSection(ctx, in, 0, in.Size()), Size: in.Size(), End: u.End, If: u.If}, b.g.now(), 0)
	if errors.Is(err, fs.ErrNotExist) && u.If.Match == "" {
		err = serve.ErrPart // it was replaced
	}
	if err != nil {
		return done, outward(err)
	}
	return done, b.discard(ctx, id)
}

// discard removes all objects of an upload; what says that it was begun first.
func (b *bucket) discard(ctx context.Context, id string) error {
	st := b.book.Store()
	err := b.g.removeOne(ctx, b.uploads(id)+begunName)
	for info, lerr := range storekit.List(ctx, st, b.uploads(id)) {
		if err = errors.Join(err, lerr); lerr != nil {
			break
		}
		if ofUpload().MatchString(strings.TrimPrefix(info.Name, b.uploads(id))) {
			err = errors.Join(err, b.g.removeOne(ctx, info.Name))
		}
	}
	return err
}

// Abandon implements [serve.Bucket].
func (b *bucket) Abandon(ctx context.Context, key, id string) error {
	if _, err := b.begun(ctx, key, id); err != nil {
		return err
	}
	return b.discard(ctx, id)
}

// Uploads implements [serve.Bucket].
func (b *bucket) Uploads(ctx context.Context) (all []serve.Begun, err error) {
	for info, err := range storekit.List(ctx, b.book.Store(), b.uploads()) {
		if err != nil {
			return nil, err
		}
		id, is := strings.CutSuffix(strings.TrimPrefix(info.Name, b.uploads()), "-"+begunName)
		if !is {
			continue
		}
		var of begun
		if err := getJSON(ctx, b.book.Store(), info.Name, &of); errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		} else if err != nil {
			return nil, err
		}
		all = append(all, serve.Begun{Key: string(of.Key), ID: id, Time: of.Time})
	}
	slices.SortFunc(all, func(a, b serve.Begun) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

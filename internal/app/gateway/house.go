package gateway

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Clients do not finish every upload, and programs are killed between one step and the next. What such a thing has left
// goes when it is so old that nobody goes on with it, and only if its name is one that this package makes. How old
// something is, the store says by the times of its objects.
const (
	firstLook = 5 * time.Minute
	lookAgain = time.Hour
	oldUpload = 7 * 24 * time.Hour // without a new part
	oldOrphan = 24 * time.Hour
	// mostOrphans are given up at once.
	mostOrphans = 1000
)

func (b *bucket) keepHouse(ctx context.Context) {
	for d := firstLook; b.g.o.wait(ctx, d); d = lookAgain {
		err := errors.Join(b.endUploads(ctx), b.giveUp(ctx))
		if err != nil && ctx.Err() == nil && !isClosed(b.shut) {
			b.g.o.Logger.Warn("what is left of uploads and archives cannot be removed now", "bucket", b.name, "error", err)
		}
	}
}

// ofUpload is what the names of an upload's objects are after its ID.
var ofUpload = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(` + begunName + `|` + endedName + `|part-[0-9]{5}|(` + contentName + `|` + finishName + `)[0-9A-Z]{26})$`)
})

// endUploads removes uploads to which nothing was added for a long time, and what others have left.
func (b *bucket) endUploads(ctx context.Context) error {
	newest, ended := map[string]time.Time{}, map[string]time.Time{}
	for info, err := range storekit.List(ctx, b.book.Store(), b.uploads()) {
		if err != nil {
			return err
		}
		id, rest, _ := strings.Cut(strings.TrimPrefix(info.Name, b.uploads()), "-")
		switch {
		case !uploadID().MatchString(id) || !ofUpload().MatchString(rest):
		case rest == endedName:
			ended[id] = info.ModTime
		case newest[id].Before(info.ModTime):
			newest[id] = info.ModTime
		}
	}
	var errs error
	for id, at := range ended {
		if b.g.now().Sub(at) >= oldOrphan { // nobody adds to it any more, or who has begun to remove it was killed
			errs = errors.Join(errs, b.g.removeOne(ctx, b.uploads(id)+endedName))
		}
	}
	for id, at := range newest {
		if _, is := ended[id]; !is && b.g.now().Sub(at) >= oldUpload { // if this clock is right
			errs = errors.Join(errs, b.endUpload(ctx, id))
		}
	}
	return errs
}

// endUpload removes an upload if it is old. First it creates an object that says so, whose time is now, and then it looks
// at all others. Whoever adds a part, or makes an object of parts, writes an object of the upload first, and then looks
// for that one. So one sees the other: the upload is not old any more, and stays, or the client hears that it is gone.
// Only who has created the object removes anything. It stays for a while, so that nobody can take it for never created.
func (b *bucket) endUpload(ctx context.Context, id string) error {
	st, ended := b.book.Store(), b.uploads(id)+endedName
	err := putJSON(ctx, st, ended, struct{}{}, store.Wishes{Once: true})
	if errors.Is(err, fs.ErrExist) { // another does this, or its answer was lost
		return nil
	}
	if err != nil {
		return err
	}
	var is begun
	if err := getJSON(ctx, st, b.uploads(id)+begunName, &is); err != nil && !errors.Is(err, fs.ErrNotExist) { // its removal may have been interrupted
		return errors.Join(err, b.g.removeOne(ctx, ended))
	}
	var now time.Time
	var names []string // what says that it was begun is the first
	newest, timeless := is.Time, false
	for info, err := range storekit.List(ctx, st, b.uploads(id)) {
		switch rest := strings.TrimPrefix(info.Name, b.uploads(id)); {
		case err != nil:
			return errors.Join(err, b.g.removeOne(ctx, ended))
		case rest == endedName:
			now = info.ModTime
		case ofUpload().MatchString(rest):
			names = append(names, info.Name)
			timeless = timeless || info.ModTime.IsZero()
			if newest.Before(info.ModTime) {
				newest = info.ModTime
			}
		}
	}
	if timeless || now.Sub(newest) < oldUpload {
		return b.g.removeOne(ctx, ended)
	}
	for _, name := range names {
		if err := b.g.removeOne(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// mayAdd returns an error if an upload is about to be removed, or was. What is added must be there before it is asked.
func (b *bucket) mayAdd(ctx context.Context, key, id string) error {
	_, err := storekit.Briefly(b.book.Store(), b.uploads(id)+endedName).Info(ctx)
	switch {
	case err == nil:
		_, err := b.begun(ctx, key, id)
		return cmp.Or(err, serve.ErrBusy) // what was added is new, so perhaps it stays
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// giveUp records archives of gateways that no commit has, and none will have, as such that are to be removed: those that
// were written before a program was killed, or whose log was lost. A fleet removes them. Each commit of a gateway
// refuses archives that were given up, so it does not matter for how long another one was held up. The catalogue must be
// older than the archive, and nothing beside may say that a catalogue has had it.
func (b *bucket) giveUp(ctx context.Context) error {
	s, err := b.state(ctx)
	if err != nil {
		return err
	}
	since, err := b.book.TimeOf(ctx, 1)
	if err != nil {
		return err
	}
	now, err := b.book.TimeOf(ctx, s.Number)
	if err != nil {
		return err
	}
	st, added := b.book.Store(), map[string]bool{}
	var old []string
	for info, err := range storekit.List(ctx, st, b.in(b.packing.Head)) {
		if err != nil {
			return err
		}
		base := path.Base(info.Name)
		if archive, is := book.WasAdded(base); is {
			added[archive] = true
		} else if b.packing.Owns(base) && info.ModTime.After(since) && now.Sub(info.ModTime) >= oldOrphan {
			old = append(old, base)
		}
	}
	// What is being made comes into a layer, and from there into a commit: so it is looked for.
	needed := b.isMade()
	for _, l := range b.over.Load().every {
		needed[b.archiveOf(l.seg.Log())] = true
		for _, name := range l.names() {
			needed[name] = true
		}
	}
	var orphans []catalog.Archive
	for _, name := range old {
		if added[name] || needed[name] || s.Has(name) || len(orphans) == mostOrphans {
			continue
		}
		info, err := storekit.Briefly(st, b.in(name)).Info(ctx)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		orphans = append(orphans, catalog.Archive{Address: storekit.AddressOf(st, b.in(name)), Size: info.Size, Version: survey.Version(info, st.Can().Near)})
	}
	if len(orphans) == 0 {
		return nil
	}
	n, err := b.book.GiveUp(ctx, orphans, func(s *book.State) error {
		if isClosed(b.shut) {
			return b.stopped()
		}
		return b.owns(s)
	})
	if n > 0 {
		b.g.o.Logger.Info("archives that no commit has are to be removed", "bucket", b.name, "archives", n)
	}
	return err
}

package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/facts"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// ErrNoRecording is the error for an archive that has no facts.
var ErrNoRecording = errors.New("expected a recording, found no NWB file")

// keysView is the view of formats that have recordings.
const keysView = "zarr"

// MayHaveFacts reports whether an archive may be a recording, by its name.
func MayHaveFacts(name string) bool {
	f := format.All().ByExtension(name)
	return f != nil && slices.Contains(f.Views, keysView)
}

// readFacts reads what a recording says of itself, and closes it.
func (s *Survey) readFacts(ctx context.Context, o holdall.OpenOptions) error {
	path, ok := s.FactsPath()
	if !ok {
		return fmt.Errorf("it is recorded with facts that this version of holdall does not know: %.20q", s.Facts)
	}
	if MayHaveFacts(s.name) {
		o.View = keysView
	}
	in, err := holdall.Open(ctx, s.name, o.In(s.st))
	if err != nil {
		return err
	}
	defer in.Close()
	s.Format, s.In = in.Format().Name, in
	defer func() { s.In = nil }()
	if s.Size, s.Version, ok = s.opened(ctx); !ok {
		return errors.New("a recording of several objects cannot be recorded as one file: 'holdall convert' makes one of it")
	}
	if err := damaged(in.Doubt()); err != nil {
		return err
	}
	if !hierarchy.Is(ctx, in) {
		return ErrNoRecording
	}
	h, err := hierarchy.Read(ctx, in)
	if err != nil {
		return err
	}
	n, err := h.NWB(ctx, 0) // times would take two requests for each series
	if err == nil && n == nil {
		err = ErrNoRecording
	}
	if err != nil {
		return err
	}
	if failed, ok := errors.AsType[*store.Error](n.Err); ok { // what is missing then may be there
		return failed
	}
	if s.Said, err = facts.Of(n); err != nil {
		return err
	}
	info, err := storekit.Briefly(s.st, s.name).Info(ctx)
	if err == nil && (info.Size != s.Size || Version(info, s.st.Can().Near) != s.Version) {
		err = store.ErrChanged
	}
	s.whole = &catalog.Location{Path: path, Kind: format.File, Size: s.Size, Raw: true, Modified: info.ModTime, HeaderText: catalog.FactsText(string(s.Said.Text))}
	return err
}

// damaged returns a doubt, unless it is only about what cannot be shown.
func damaged(doubt error) error {
	if c, ok := errors.AsType[*format.CorruptError](doubt); ok && c.Problem.Code == format.Unsupported {
		return nil
	}
	return doubt
}

package lindi

import (
	"context"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/store"
)

// jsonSink writes lindi.json alone.
type jsonSink struct {
	name string
	out  store.Writer
	err  error
}

func newJSONSink(ctx context.Context, st store.Store, name string) (*jsonSink, error) {
	out, err := store.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	return &jsonSink{name: name, out: out}, nil
}

func (s *jsonSink) put(_ context.Context, _ string, e format.Entry, _ io.Reader) (string, error) {
	return "", formatkit.NoPlace(e.Name, "a lindi.json alone has no place for members")
}

func (s *jsonSink) finish(ctx context.Context, rfs []byte) (int64, []string, error) {
	if _, s.err = s.out.Write(rfs); s.err != nil {
		return 0, nil, s.err
	}
	info, err := s.out.Commit(ctx)
	s.err = err
	return info.Size, []string{s.name}, err
}

func (s *jsonSink) abort() error  { return s.out.Abort() }
func (s *jsonSink) broken() error { return s.err }

// dirSink writes members as objects below a name, and lindi.json last: an
// archive without it is none yet.
type dirSink struct {
	st      store.Store
	name    string
	stored  int64
	volumes []string
	buf     []byte
}

func (s *dirSink) put(ctx context.Context, name string, e format.Entry, r io.Reader) (string, error) {
	if s.buf == nil {
		s.buf = make([]byte, 64<<10)
	}
	if err := putObject(ctx, s.st, s.name+"/"+name, e, r, s.buf); err != nil {
		return "", err
	}
	s.stored += e.Size
	s.volumes = append(s.volumes, s.name+"/"+name)
	return "", nil
}

// putObject writes content as an object of its own.
func putObject(ctx context.Context, st store.Store, name string, e format.Entry, r io.Reader, buf []byte) error {
	_, err := store.Write(ctx, st, name, func(out store.Writer) error {
		sec, ok := r.(*format.Section)
		if !ok || sec.N != e.Size {
			return formatkit.CopyContent(ctx, e, r, buf, nil, func(p []byte) error {
				_, err := out.Write(p)
				return err
			})
		}
		err := store.WriteRange(ctx, out, sec.Object, sec.Off, sec.N)
		if err == nil && sec.Sum != nil {
			_, err = sec.Sum()
		}
		return err
	})
	return err
}

func (s *dirSink) finish(ctx context.Context, rfs []byte) (int64, []string, error) {
	if err := formatkit.WriteBytes(ctx, s.st, s.name+"/"+rfsName, rfs); err != nil {
		return 0, nil, err
	}
	return s.stored + int64(len(rfs)), append(s.volumes, s.name+"/"+rfsName), nil
}

func (s *dirSink) abort() error  { return nil }
func (s *dirSink) broken() error { return nil }

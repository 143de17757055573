package lindi

import (
	"context"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// looseSink writes members as objects below a name, and lindi.json last, which makes them an
// archive. Or it writes a single lindi.json.
type looseSink struct {
	st      store.Store
	dir     string       // with its slash
	rfs     string       // the name of lindi.json
	out     store.Writer // of a single lindi.json
	err     error        // an error of out
	stored  int64
	volumes []string
	buf     []byte
}

func (s *looseSink) put(ctx context.Context, name string, e format.Entry, r io.Reader) error {
	if s.out != nil {
		return kit.Refuse(e.Name, "a plain lindi.json cannot store members")
	}
	if s.buf == nil {
		s.buf = make([]byte, 64<<10)
	}
	if err := putObject(ctx, s.st, s.dir+name, e, r, s.buf); err != nil {
		return err
	}
	s.stored += e.Size
	s.volumes = append(s.volumes, s.dir+name)
	return nil
}

// putObject writes content as an object of its own.
func putObject(ctx context.Context, st store.Store, name string, e format.Entry, r io.Reader, buf []byte) error {
	_, err := storekit.Write(ctx, st, name, func(out store.Writer) error {
		sec, ok := r.(*kit.Section)
		if !ok || sec.N != e.Size {
			return kit.CopyContent(ctx, e, r, buf, nil, func(p []byte) error {
				_, err := out.Write(p)
				return err
			})
		}
		err := storekit.WriteRange(ctx, out, sec.Object, sec.Off, sec.N)
		if err == nil && sec.Sum != nil {
			_, err = sec.Sum()
		}
		return err
	})
	return err
}

func (s *looseSink) finish(ctx context.Context, rfs []byte) (int64, []string, error) {
	sum, volumes := s.stored+int64(len(rfs)), append(s.volumes, s.rfs)
	if s.out == nil {
		return sum, volumes, kit.WriteBytes(ctx, s.st, s.rfs, rfs)
	}
	if _, s.err = s.out.Write(rfs); s.err == nil {
		_, s.err = s.out.Commit(ctx)
	}
	return sum, volumes, s.err
}

func (s *looseSink) abort() error {
	if s.out == nil {
		return nil
	}
	return s.out.Abort()
}

func (s *looseSink) broken() error { return s.err }

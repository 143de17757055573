package holdall

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/tree"
	"github.com/holdall/holdall/store"
)

// dirFormat presents a folder as an archive, so that it can be compared, searched and converted.
// It is not registered, because a folder has no bytes to detect it by.
var dirFormat = &format.Format{
	Name:  "dir",
	Title: "Folder",
	Keeps: format.KeepsModes | format.KeepsTimes | format.KeepsDirs | format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos,
}

// openFolder opens a local folder as if it were an archive.
func openFolder(ctx context.Context, dir string) (*Archive, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fmt.Errorf("is not a folder")}
	}
	var stored int64
	var entries kit.Entries
	first := map[tree.Same]string{} // names of files with several
	for n := range tree.Walk(ctx, []tree.Root{{Path: dir}}, tree.Options{Stat: true}) {
		if n.Err != nil && n.Info == nil {
			return nil, n.Err
		}
		e, ok := pack.EntryOf(n)
		if !ok {
			continue // no archive contains sockets and devices
		}
		if e.Mode, e.Ref = e.Mode&^fs.ModeType, n.Path; n.Type.IsRegular() {
			if same, several := tree.SameOf(n.Info); several && first[same] != "" {
				e.Kind, e.Link = format.HardLink, first[same]
			} else {
				if e.Size = n.Info.Size(); several {
					first[same] = e.Name
				}
			}
		}
		stored += e.Size
		entries = append(entries, e)
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	src := content.New(dirStore{}, dir, nil, 0)
	src.Read(dirFormat, &dirReader{kit.NewIndex(entries)})
	src.Loose = stored
	return &Archive{src: src}, nil
}

// IsDir reports whether the archive is a folder that was opened with the format "dir".
func (a *Archive) IsDir() bool { return a.src.Format == dirFormat }

type dirReader struct{ *kit.Index }

func (d *dirReader) Extents(_ context.Context, e Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if p, ok := e.Ref.(string); ok && n > 0 && e.Size > 0 {
			yield(format.Extent{Size: e.Size, Object: p, Len: e.Size}, nil)
		}
	}
}

func (d *dirReader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(func(format.Region, error) bool) {}
}

func (d *dirReader) About(context.Context) (format.About, error) { return format.About{}, nil }
func (d *dirReader) Close() error                                { return nil }

// dirStore opens a file again for each read, because a folder may have more files than a process
// can hold open.
type dirStore struct{}

func (dirStore) Can() store.Abilities { return store.Abilities{Near: true} }

func (dirStore) Open(_ context.Context, name string) (store.Object, error) {
	return looseFile(name), nil
}

type looseFile string

func (f looseFile) Info(context.Context) (store.Info, error) {
	info, err := os.Stat(string(f))
	if err != nil {
		return store.Info{}, err
	}
	return store.Info{Name: string(f), Size: info.Size(), ModTime: info.ModTime()}, nil
}

func (f looseFile) ReadAt(_ context.Context, p []byte, off int64) error {
	m, _, file, err := tree.Load(string(f), nil, false)
	if err != nil {
		return err
	}
	defer file.Close()
	if off+int64(len(p)) > m.Size {
		return &fs.PathError{Op: "read", Path: string(f), Err: store.ErrChanged}
	}
	_, err = io.ReadFull(io.NewSectionReader(file, off, int64(len(p))), p)
	return err
}

func (f looseFile) Close() error { return nil }

func (f looseFile) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

package store

import "context"

// OpenInfo opens an object and requests its Info.
func OpenInfo(ctx context.Context, st Store, name string) (o Object, info Info, err error) {
	if o, err = st.Open(ctx, name); err != nil {
		return nil, info, err
	}
	if info, err = o.Info(ctx); err != nil {
		o.Close()
		return nil, info, err
	}
	return o, info, nil
}

// Briefly returns an object that is opened anew for each call of its methods. It is for programs
// that use more objects than a process can hold open.
func Briefly(st Store, name string) Object { return briefly{st, name} }

type briefly struct {
	st   Store
	name string
}

func (b briefly) do(ctx context.Context, ask func(Object) error) error {
	o, err := b.st.Open(ctx, b.name)
	if err != nil {
		return err
	}
	defer o.Close()
	return ask(o)
}

func (b briefly) Info(ctx context.Context) (info Info, err error) {
	err = b.do(ctx, func(o Object) (err error) { info, err = o.Info(ctx); return err })
	return info, err
}

func (b briefly) ReadAt(ctx context.Context, p []byte, off int64) error {
	return b.do(ctx, func(o Object) error { return o.ReadAt(ctx, p, off) })
}

func (b briefly) Close() error { return nil }

func (b briefly) Can() ObjectAbilities { return ObjectAbilities{} }

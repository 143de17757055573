package main

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/gateway"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/read/outside"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// openGateway opens what serve --write writes into.
func (a *app) openGateway(ctx context.Context, set *serve.Set, o serving, log *slog.Logger) (*gateway.Gateway, error) {
	address, only := strings.TrimRight(o.write, "/"), ""
	if store.Scheme(address) == "" {
		whole, err := filepath.Abs(address)
		if err != nil {
			return nil, err
		}
		address = filepath.ToSlash(whole)
	}
	if layer, _ := store.CutLayer(address); layer != "" {
		return nil, usage("--write %s: a gateway cannot write encrypted archives", store.Redact(o.write))
	}
	if isBook(address) {
		only = strings.TrimSuffix(path.Base(address), book.Suffix)
		address = strings.TrimSuffix(address, "/"+path.Base(address))
	}
	st, name, err := store.OpenAddress(ctx, address+"/x")
	if err != nil {
		return nil, err
	}
	through, err := sourceOf(o.through)
	if err != nil {
		return nil, err
	}
	inBucket := o.durable == "bucket"
	if o.log == "" && !inBucket {
		if !st.Can().Near || store.Scheme(address) != "" {
			return nil, usage("--write %s needs --log: a folder on a disk of this machine for what is written and not packed yet", store.Redact(o.write))
		}
		o.log = filepath.FromSlash(address)
	}
	return gateway.New(ctx, st, strings.TrimSuffix(name, "x"), only, set, gateway.Options{
		Log: o.log, InBucket: inBucket, TakeOver: o.takeOver, Through: through, Adopt: o.adopt, Address: o.public, Logger: log, NoVerify: a.noVerify,
		Packing: func(ctx context.Context, bucket string) (fleet.Packing, error) {
			return fleet.OfGateway(ctx, bucket, storekit.AddressOf(st, strings.TrimSuffix(name, "x")+bucket+".caf"), float64(o.protect))
		},
		Find: func(c *book.Book) gateway.Find {
			return outside.Rule{Store: c.Store(), Name: c.Name(), Allowed: a.mayLead()}.Find
		},
	})
}

// sourceOf returns the address of a source as catalogues have it.
func sourceOf(address string) (string, error) {
	if address == "" || address == gateway.None {
		return address, nil
	}
	at, anonymous := strings.CutSuffix(address, "?anonymous")
	root, err := shelf.RootOf(at)
	if anonymous {
		root.Address += "?anonymous"
	}
	return root.Address, err
}

// flushGrace is how long the end of the program may take to pack what was written.
const flushGrace = 5 * time.Second

// closeGateway packs what is in the log, as far as that is quick. The rest is packed when the gateway starts again.
func closeGateway(g *gateway.Gateway) error {
	ctx, cancel := context.WithTimeout(context.Background(), flushGrace)
	defer cancel()
	err := g.Leave(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, g.Close())
}

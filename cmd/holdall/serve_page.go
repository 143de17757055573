package main

import (
	"context"
	"sync"

	"github.com/holdall/holdall/app/explore"
	"github.com/holdall/holdall/app/explore/nodes"
	"github.com/holdall/holdall/app/serve"
)

// pageSource gives the explorer the archives that are served. They stay open for it until
// it is released.
type pageSource struct {
	set *serve.Set

	mu   sync.Mutex
	held []*serve.Archive
}

func (s *pageSource) Names(ctx context.Context) ([]string, error) {
	all, err := s.set.List(ctx)
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = x.Name
	}
	if len(names) > 0 {
		err = nil // of those that are there; the log has it
	}
	return names, err
}

func (s *pageSource) Open(ctx context.Context, name string) (explore.Archive, error) {
	in, err := s.set.Use(ctx, name, "")
	if err != nil {
		return explore.Archive{}, err
	}
	s.mu.Lock()
	s.held = append(s.held, in)
	s.mu.Unlock()
	return nodes.Add(explore.Archive{Name: in.Name, Address: in.Address, Archive: in.Archive, Store: in.Archive.Store(), Open: in.Archive.Options()}), nil
}

func (s *pageSource) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.held {
		in.Release()
	}
	s.held = nil
}

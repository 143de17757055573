package local

import "github.com/holdall/holdall/store"

// wrapped is an object as a retrying or caching store would hand it out.
type wrapped struct{ store.Object }

func (w wrapped) Can() store.ObjectAbilities { return store.ObjectAbilities{Inner: w.Object} }

// opaque is one that does not tell what it wraps.
type opaque struct{ store.Object }

func (opaque) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

package book_test

import (
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book/booktest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

func TestTwoWritersOnADisk(t *testing.T) {
	dir := t.TempDir()
	booktest.Writers(t, func() store.Store {
		st := local.New(dir)
		st.NoSync = true
		return st
	}, "photos.catalog", testkit.Rand(t))
}

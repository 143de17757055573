package azure_test

import (
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book/booktest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

func TestTwoWritersOfACatalogue(t *testing.T) {
	settings(t)
	name := container(t)
	booktest.Writers(t, func() store.Store { return at(t, name, "") }, "packed/photos.catalog", testkit.Rand(t))
}

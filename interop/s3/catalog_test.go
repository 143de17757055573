package s3_test

import (
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book/booktest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest/s3test"
)

func TestTwoWritersOfACatalogue(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	booktest.Writers(t, func() store.Store { return at(t, dir, "catalogue") }, "packed/photos.catalog", testkit.Rand(t))
}

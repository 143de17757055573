// Package all registers plain paths and the schemes file, http, https, s3, gs and az, and the layer age: for
// [store.OpenAddress]. Import it for that side effect:
//
//	import _ "github.com/holdall/holdall/store/all"
//
// It is for programs. Libraries should leave the choice of stores to the program that uses them.
package all

import (
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/age"
	"github.com/holdall/holdall/store/azure"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/web"
)

func init() {
	store.Register("", local.Open)
	store.Register("file", local.Open)
	store.Register("http", web.Open)
	store.Register("https", web.Open)
	store.Register("s3", bucket.Open)
	store.Register("gs", bucket.Open)
	store.Register("az", azure.Open)
	store.Register("age", age.Open)
}

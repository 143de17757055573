module github.com/holdall/holdall/interop/databundle/peers

go 1.26.0

require (
	github.com/golang/snappy v0.0.4 // indirect
	github.com/syndtr/goleveldb v1.0.1-0.20220721030215-126854af5e6d // indirect
)

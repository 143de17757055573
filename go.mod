module github.com/holdall/holdall

go 1.26.0

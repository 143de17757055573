package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// understandsColours reports whether a console obeys codes, and makes it do so if it can.
func understandsColours(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	return windows.GetConsoleMode(h, &mode) == nil && windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

//go:build !windows

package main

import "os"

func understandsColours(*os.File) bool { return true }

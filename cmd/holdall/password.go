package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// mostPassword is the length of the longest password.
const mostPassword = 4096

// passwordFlag is a flag that names a file with a password. A password in the command line itself
// would be visible to every program of the machine.
type passwordFlag string

func (p *passwordFlag) String() string { return "" }
func (p *passwordFlag) Type() string   { return "file" }

func (p *passwordFlag) Set(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, mostPassword+2)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" || len(line) > mostPassword {
		return fmt.Errorf("%s: expected a password of 1 to %d bytes in the first line", file, mostPassword)
	}
	*p = passwordFlag(line)
	return nil
}

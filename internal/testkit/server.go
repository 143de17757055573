package testkit

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// FreeAddr returns an address of this machine on which no program listens.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Start starts a server and waits until it listens at an address. What it returns kills
// the server, and tells what that said.
func Start(cmd *exec.Cmd, addr string) (stop func() string, err error) {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	died := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(died)
	}()
	stop = func() string {
		_ = cmd.Process.Kill() // it may be dead already
		<-died
		return said.String()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			return stop, c.Close() // nothing was sent
		}
		select {
		case <-died:
			return nil, fmt.Errorf("%s ended: %s", cmd.Path, said.String())
		case <-late:
			return nil, fmt.Errorf("%s does not listen after a minute: %s", cmd.Path, stop())
		case <-tick.C:
		}
	}
}

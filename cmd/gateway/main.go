// Command gateway serves the files of a FastDFS store over HTTP.
//
//	gateway -c /etc/fdfs/mod_fastdfs.conf
//
// See "gateway help" and docs/cli.md for its other commands.
package main

import (
	"cmp"
	"os"
	"runtime"

	"fastdfs-gateway/cmd/gateway/command"
	"fastdfs-gateway/internal/process/early"
)

// The kernel gives the signals of the process to its main thread if that waits, also in a call that
// cannot be interrupted, such as an open on a disk that hangs. So this thread does nothing else.
func init() { runtime.LockOSThread() }

func main() {
	code := make(chan int)
	go func() {
		code <- command.Run(cmp.Or(early.Version, "development"), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}()
	os.Exit(<-code)
}

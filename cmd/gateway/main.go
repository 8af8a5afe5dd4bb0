// Command gateway serves the files of a FastDFS store over HTTP.
//
//	gateway -c /etc/fdfs/mod_fastdfs.conf
//
// See "gateway help" and docs/cli.md for its other commands.
package main

import (
	"os"
	"runtime"

	"fastdfs-gateway/cmd/gateway/command"
)

// version is set by the linker: see the Makefile.
var version = "development"

// The kernel gives the signals of the process to its main thread if that waits, also in a call that
// cannot be interrupted, such as an open on a disk that hangs. So this thread does nothing else.
func init() { runtime.LockOSThread() }

func main() {
	code := make(chan int)
	go func() { code <- command.Run(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr) }()
	os.Exit(<-code)
}

// Command gateway serves the files of a FastDFS store over HTTP.
//
//	gateway -c /etc/fdfs/mod_fastdfs.conf
//
// See "gateway help" and docs/cli.md for its other commands.
package main

import (
	"os"

	"fastdfs-gateway/cmd/gateway/command"
)

// version is set by the linker: see the Makefile.
var version = "development"

func main() {
	os.Exit(command.Run(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

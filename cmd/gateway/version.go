package main

import (
	"fmt"
	"runtime"
)

// version is set by the linker, see the Makefile.
var version = "development"

func runVersion(c *call) error {
	if err := c.parse(0, 0); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "fastdfs-gateway %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

package main

import (
	"fmt"
	"runtime"
)

// version is set by the linker, see the Makefile.
var version = "development"

// build is the program, in the form of -json.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func runVersion(c *call) error {
	asJSON := c.jsonFlag()
	if err := c.parse(0, 0); err != nil {
		return err
	}
	b := build{version, runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if *asJSON {
		return c.printJSON(b)
	}
	fmt.Fprintf(c.stdout, "fastdfs-gateway %s (%s, %s/%s)\n", b.Version, b.Go, b.OS, b.Arch)
	return nil
}

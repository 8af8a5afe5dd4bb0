package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM returns the list of the modules in a built program, as go version -m prints it, with
// their licenses, in the form of CycloneDX 1.5.
func writeSBOM(program, version string, when time.Time, all []module) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	deps := map[string]string{"std": ""} // sums
	for _, dep := range info.Deps {
		deps[dep.Path] = dep.Sum
	}
	components := []cdx.Component{}
	for _, m := range all {
		sum, linked := deps[m.path]
		if !linked {
			return nil, fmt.Errorf("module %s is listed and not in the program", m.path)
		}
		delete(deps, m.path)
		c := component(cdx.ComponentTypeLibrary, m)
		if sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
		}
		components = append(components, c)
	}
	if len(deps) > 0 {
		return nil, fmt.Errorf("modules in the program that are not listed: %v", deps)
	}
	sum := sha256.Sum256(text)
	main := component(cdx.ComponentTypeApplication,
		module{path: "fastdfs-gateway", version: version, license: "Apache-2.0"})
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}}
	b := cdx.NewBOM()
	b.SerialNumber = serialNumber(sum)
	b.Metadata = &cdx.Metadata{Timestamp: when.Format(time.RFC3339), Component: &main}
	b.Components = &components
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(b, cdx.SpecVersion1_5)
	return out.Bytes(), err
}

func component(kind cdx.ComponentType, m module) cdx.Component {
	purl := "pkg:golang/" + strings.ToLower(m.path) + "@" + m.version
	return cdx.Component{
		Type: kind, BOMRef: purl, Name: m.path, Version: m.version, PackageURL: purl,
		Licenses: &cdx.Licenses{{Expression: m.license}},
	}
}

// serialNumber returns a UUID of version 8 (RFC 9562) for a hash: the same program has the same
// UUID.
func serialNumber(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

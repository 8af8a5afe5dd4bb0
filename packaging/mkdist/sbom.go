package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// bom is a list of components in the form of CycloneDX 1.5, with those fields that are used here.
type bom struct {
	Format      string         `json:"bomFormat"`
	SpecVersion string         `json:"specVersion"`
	Serial      string         `json:"serialNumber"`
	Version     int            `json:"version"`
	Metadata    bomMetadata    `json:"metadata"`
	Components  []bomComponent `json:"components"`
}

type bomMetadata struct {
	Timestamp string       `json:"timestamp"`
	Component bomComponent `json:"component"`
}

type bomComponent struct {
	Type       string        `json:"type"`
	Ref        string        `json:"bom-ref"`
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	Hashes     []bomHash     `json:"hashes,omitempty"`
	Licenses   []bomLicense  `json:"licenses"`
	PURL       string        `json:"purl"`
	Properties []bomProperty `json:"properties,omitempty"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type bomLicense struct {
	Expression string `json:"expression"`
}

type bomProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// writeSBOM lists the modules in a built program, as go version -m does, with their licenses.
func writeSBOM(program, version string, when time.Time, all []module) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	b := bom{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Serial: "urn:uuid:" + uuid(sum),
		Metadata: bomMetadata{when.Format(time.RFC3339), bomComponent{
			Type: "application", Name: "fastdfs-gateway", Version: version,
			Hashes: []bomHash{{"SHA-256", fmt.Sprintf("%x", sum)}}, Licenses: []bomLicense{{"Apache-2.0"}},
		}},
	}
	main := &b.Metadata.Component
	main.PURL = "pkg:golang/fastdfs-gateway@" + version
	main.Ref = main.PURL
	deps := map[string]string{"std": ""} // sums
	for _, dep := range info.Deps {
		deps[dep.Path] = dep.Sum
	}
	for _, m := range all {
		sum, linked := deps[m.path]
		if !linked {
			return nil, fmt.Errorf("module %s is listed and not in the program", m.path)
		}
		delete(deps, m.path)
		b.Components = append(b.Components, component(m, sum))
	}
	if len(deps) > 0 {
		return nil, fmt.Errorf("modules in the program that are not listed: %v", deps)
	}
	out, err := json.MarshalIndent(b, "", "  ")
	return append(out, '\n'), err
}

func component(m module, sum string) bomComponent {
	c := bomComponent{
		Type: "library", Name: m.path, Version: m.version, Licenses: []bomLicense{{m.license}},
		PURL: "pkg:golang/" + strings.ToLower(m.path) + "@" + m.version,
	}
	c.Ref = c.PURL
	if sum != "" {
		c.Properties = []bomProperty{{"go:sum", sum}}
	}
	return c
}

// uuid makes a UUID of version 8 (RFC 9562) from a hash: the same program has the same one.
func uuid(sum [sha256.Size]byte) string {
	u := slices.Clone(sum[:16])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

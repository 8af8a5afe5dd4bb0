package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// module is a module that is linked into the program.
type module struct {
	path, version string
	license       string            // SPDX expression
	texts         map[string][]byte // its licenses and notices, by their path in the module
}

// licenseFile matches the names of files whose text has to be distributed with the program.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// modules returns the modules that are linked into the program for an architecture, and Go itself,
// sorted by path.
func modules(ctx context.Context, arch string) ([]module, error) {
	const format = "{{if .Module}}{{if not .Module.Main}}{{.Module.Path}} {{.Module.Version}} " +
		"{{.Module.Dir}} {{.Dir}}{{end}}{{end}}"
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f", format, "./cmd/gateway")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the modules of the program: %w", err)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the folder of Go: %w", err)
	}
	goroot := strings.TrimSpace(string(root))
	found := map[string]*module{}
	lines := append(strings.Split(strings.TrimSpace(string(out)), "\n"),
		fmt.Sprintf("std %s %s %s", strings.TrimPrefix(runtime.Version(), "go"), goroot, goroot))
	for _, line := range lines {
		fields := strings.Fields(line) // path, version, folder of the module, folder of the package
		if len(fields) != 4 {
			continue // an empty line is a package of Go or of this module
		}
		m := found[fields[0]]
		if m == nil {
			m = &module{path: fields[0], version: fields[1], texts: map[string][]byte{}}
			found[m.path] = m
		}
		if err := m.readTexts(fields[2], fields[3]); err != nil {
			return nil, err
		}
	}
	var all []module
	for _, m := range found {
		if m.license, err = licenseOf(m.texts); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return all, nil
}

// readTexts reads the license files in the folder of a package and in those above it.
func (m *module) readTexts(root, dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !licenseFile.MatchString(e.Name()) || path.Ext(e.Name()) == ".go" {
				continue
			}
			if m.texts[path.Join(rel, e.Name())], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if dir == root || rel == "." {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// known are the known licenses, each with a sentence that only it has.
var known = []struct{ id, text string }{
	{"Apache-2.0", "apache license version 2.0"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"MPL-2.0", "mozilla public license, version 2.0"},
	{"BSD-3-Clause", "endorse or promote products derived from this software without"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms"}, // without the third clause
}

var (
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	spdx        = regexp.MustCompile(`SPDX-License-Identifier: ([A-Za-z0-9. -]*[A-Za-z0-9])`)
)

// licenseOf returns the licenses of the files in the root of a module. An unknown license is an
// error: it has to be read before it is released.
func licenseOf(texts map[string][]byte) (string, error) {
	ids := []string{}
	for name, text := range texts {
		if strings.Contains(name, "/") || !licenseName.MatchString(name) {
			continue
		}
		if m := spdx.FindSubmatch(text); m != nil {
			return string(m[1]), nil
		}
		flat := strings.ToLower(string(bytes.Join(bytes.Fields(text), []byte(" "))))
		for _, k := range known {
			if k.id == "BSD-2-Clause" && slices.Contains(ids, "BSD-3-Clause") {
				continue
			}
			if strings.Contains(flat, k.text) && !slices.Contains(ids, k.id) {
				ids = append(ids, k.id)
			}
		}
	}
	if len(ids) == 0 {
		return "", errors.New("its license is not known: read it, and add it to those that are")
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND "), nil
}

// thirdParty returns the text of all licenses and notices.
func thirdParty(all []module) []byte {
	var b bytes.Buffer
	rule := strings.Repeat("=", 100)
	b.WriteString("fastdfs-gateway is linked with the modules below. Their licenses and notices follow.\n\n")
	for _, m := range all {
		fmt.Fprintf(&b, "    %s %s: %s\n", m.path, m.version, m.license)
	}
	for _, m := range all {
		for _, name := range slices.Sorted(maps.Keys(m.texts)) {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%s\n\n%s\n", rule, m.path, m.version, name, rule,
				bytes.TrimSpace(m.texts[name]))
		}
	}
	return b.Bytes()
}

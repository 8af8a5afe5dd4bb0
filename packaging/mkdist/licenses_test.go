package main

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLicenseOf(t *testing.T) {
	t.Parallel()
	const (
		mit    = "MIT\n\nPermission is hereby granted, free of charge, to any\nperson obtaining a copy"
		two    = "Redistribution and use in source\nand binary forms, with or without ..."
		third  = " endorse or promote products derived from this software without ..."
		choice = "/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */\n"
	)
	type texts = map[string]string
	for name, c := range map[string]struct {
		texts texts
		want  string // empty = an error
	}{
		"one":          {texts{"LICENSE": mit}, "MIT"},
		"two clauses":  {texts{"LICENSE.md": two}, "BSD-2-Clause"},
		"three":        {texts{"LICENSE": two + third}, "BSD-3-Clause"},
		"two files":    {texts{"LICENSE": mit, "COPYING": two}, "BSD-2-Clause AND MIT"},
		"two lines":    {texts{"LICENSE": "Apache License\n  Version 2.0"}, "Apache-2.0"},
		"named":        {texts{"License": choice + two}, "BSD-3-Clause OR GPL-2.0-only"},
		"unknown":      {texts{"LICENSE": "GNU GENERAL PUBLIC LICENSE Version 3"}, ""},
		"none":         {texts{"NOTICE": two}, ""},
		"a folder has": {texts{"internal/x/LICENSE": two}, ""},
	} {
		texts := map[string][]byte{}
		for file, text := range c.texts {
			texts[file] = []byte(text)
		}
		got, err := licenseOf(texts)
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.want == "", err != nil, name)
	}
}

// TestModules: the license of each module in the program is known, and its text is found.
func TestModules(t *testing.T) {
	t.Chdir("../..")
	all, err := modules(context.Background(), runtime.GOARCH)
	require.NoError(t, err)
	require.Greater(t, len(all), 10)
	names := map[string]bool{}
	for _, m := range all {
		names[m.path] = true
		require.NotEmpty(t, m.texts, m.path)
	}
	require.True(t, names["std"])
	require.True(t, names["github.com/valyala/fasthttp"])
	require.Contains(t, string(thirdParty(all)), "Copyright (c) 2015-present Aliaksandr Valialkin")
}

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPackageVersion(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 11, 22, 9, 8, 7, 0, time.UTC)
	for version, want := range map[string]string{
		"v1.2.3":                      "1.2.3",
		"1.2":                         "1.2",
		"v1.2.3-rc1":                  "1.2.3~rc1",
		"v1.2.3-4-gabcdef0":           "1.2.3+4.gabcdef0",
		"v1.2.3-rc1-4-gabcdef0":       "1.2.3~rc1+4.gabcdef0",
		"v1.2.3-4-gabcdef0-dirty":     "1.2.3+4.gabcdef0+dirty",
		"75d5b62":                     "0~20261122090807.75d5b62",
		"75d5b62-dirty":               "0~20261122090807.75d5b62.dirty",
		"unknown":                     "0~20261122090807.unknown",
		"a branch/with $(everything)": "0~20261122090807.a.branch.with.everything.",
	} {
		require.Equal(t, want, packageVersion(version, when), version)
	}
}

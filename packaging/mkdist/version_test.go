package main

import (
	"os/exec"
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

// TestPackageVersionOrder: dpkg upgrades from each version to the next one, and does not downgrade.
func TestPackageVersionOrder(t *testing.T) {
	t.Parallel()
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("this host has no dpkg")
	}
	when := time.Date(2026, 11, 22, 9, 8, 7, 0, time.UTC)
	versions := []string{
		packageVersion("fffffff", when), packageVersion("0000000", when.Add(time.Second)),
		packageVersion("v0.1.0-rc1", when), packageVersion("v0.1.0-rc1-2-g0000000", when),
		packageVersion("v0.1.0-rc2", when),
		packageVersion("v0.1.0", when), packageVersion("v0.1.0-9-gfffffff", when),
		packageVersion("v0.1.0-10-g0000000", when),
		packageVersion("v0.1.1", when), packageVersion("v0.10.0", when),
	}
	for i := range versions[1:] {
		out, err := exec.Command(dpkg, "--compare-versions", versions[i], "lt", versions[i+1]).CombinedOutput()
		require.NoError(t, err, "%s is not before %s: %s", versions[i], versions[i+1], out)
	}
}

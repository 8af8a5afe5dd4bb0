package cachelock_test

import (
	"cmp"
	"flag"
	"os"
	"testing"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{
		"test.parallel": "8", // these tests mostly wait
		// number of random sequences of folder locks
		"rapid.checks": cmp.Or(os.Getenv("FOLDER_CHECKS"), "500"),
	} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				panic("BUG: " + err.Error())
			}
		}
	}
	cachelock.BePatient()
	redistest.Main(m)
}

package tier_test

import (
	"os"
	"testing"

	"fastdfs-gateway/internal/cache/tier"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		writeForEver(path)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		tier.RemoveFolders()
		os.Exit(code)
	}))
}

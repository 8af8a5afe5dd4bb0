package cachelock_test

import (
	"testing"

	"fastdfs-gateway/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

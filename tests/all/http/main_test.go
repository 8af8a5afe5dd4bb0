package http

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }

package fleet

import (
	"testing"

	"fastdfs-gateway/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

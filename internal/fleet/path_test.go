package fleet

import (
	"testing"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"

	"github.com/stretchr/testify/require"
)

func TestMatches(t *testing.T) {
	for prefix, want := range map[string]string{
		"group1": "group1/", "group1/": "group1/", "group1/M00": "group1/M00/", "g/MFF/00/": "g/MFF/00/",
		"group1/M00/0A/FF/": "group1/M00/0A/FF/",
	} {
		m, err := MatchFolder(prefix)
		require.NoError(t, err)
		require.Equal(t, want, string(m))
		require.Equal(t, m, cache.Match(want))
	}
	for _, prefix := range []string{
		"", "/", "//", "group1//", "/group1", "group1/M0", "group1/00", "group1/M", "group1/M000", "group1/M0G",
		"group1/M00/0", "group1/M00/0a",
		"group1/M00/00/00/x", "group1/../M00", "group1/M00/..", "group-1", "seventeencharact1", "group1/M00/00/00//",
		"group1/M00/%2", "*",
	} {
		_, err := MatchFolder(prefix)
		require.ErrorIs(t, err, ErrPath, "prefix %q", prefix)
	}
	id := "group1/M00/00/01/wKgBcFv_ROaAWrcpAAAAEmZ5a9s018.txt"
	m, err := MatchFile(id)
	require.NoError(t, err)
	require.Equal(t, tier.MatchFile(id), m)
	_, err = MatchFile("group1/M00/00/01/../x")
	require.ErrorIs(t, err, ErrPath)
}

package checksum

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainLegacy computes the legacy variant byte by byte, as it is defined.
func plainLegacy(p []byte) uint32 {
	state := int32(-1)
	for _, b := range p {
		state = state>>8 ^ int32(crc32.IEEETable[byte(state)^b])
	}
	return uint32(state) ^ 0xffffffff
}

func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestKnownValues: the checksums match those in ids of real storages, and those of the definition.
func TestKnownValues(t *testing.T) {
	for _, c := range []struct {
		content          string
		standard, legacy uint32
	}{
		{"", 0, 0},
		{"\xa7", 0x9ab0d9c6, 0x65b0d9c6},
		{"hello", 0x3610a686, 0x1bedb6f4},
	} {
		var s Sum
		n, err := s.Write([]byte(c.content))
		require.NoError(t, err)
		require.Equal(t, len(c.content), n)
		require.Equal(t, c.standard, s.Standard(), "%q", c.content)
		require.Equal(t, c.legacy, s.Legacy(), "%q", c.content)
	}
}

func TestAgainstDefinition(t *testing.T) {
	all := random(3*blockSize + 5)
	for n := range 100 {
		require.Equal(t, plainLegacy(all[:n]), UpdateLegacy(0, all[:n]), "%d bytes", n)
		require.Equal(t, plainLegacy(all[n:2*n]), UpdateLegacy(0, all[n:2*n]), "%d bytes", n)
	}
	require.Equal(t, plainLegacy(all), UpdateLegacy(0, all))
	for _, b := range []byte{0, 0xff, 0x80} { // with states of one sign, and of changing signs
		for n := range 70 {
			p := make([]byte, n)
			for i := range p {
				p[i] = b
			}
			require.Equal(t, plainLegacy(p), UpdateLegacy(0, p), "%d of %02x", n, b)
		}
	}
}

func TestVariants(t *testing.T) {
	p := random(2*blockSize + 77)
	standard, legacy := crc32.ChecksumIEEE(p), plainLegacy(p)
	for _, c := range []struct {
		v                Variants
		standard, legacy uint32
	}{{Both, standard, legacy}, {OnlyStandard, standard, 0}} {
		s := New(c.v)
		for rest := p; len(rest) > 0; {
			n := min(len(rest), 4999)
			_, _ = s.Write(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, c.v, s.Variants())
		require.Equal(t, c.standard, s.Standard())
		require.Equal(t, c.legacy, s.Legacy())
		require.True(t, s.Matches(standard))
		require.Equal(t, c.v == Both, s.Matches(legacy))
		require.False(t, s.Matches(0), "what is not computed matches nothing")
	}
}

func TestConcat(t *testing.T) {
	p := random(100_000)
	for _, at := range []int{0, 1, 7, 16, 4096, 65536, 99_999, 100_000} {
		for _, v := range []Variants{Both, OnlyStandard} {
			whole, a, b := New(v), New(v), New(Both)
			_, _ = whole.Write(p)
			_, _ = a.Write(p[:at])
			_, _ = b.Write(p[at:])
			a.Concat(b, int64(len(p)-at))
			require.Equal(t, whole, a, "%v at %d", v, at)
		}
	}
}

func TestGroups(t *testing.T) {
	var g Groups
	require.Equal(t, OnlyStandard, g.Variants("group1"))
	g.Learn("group1")
	require.Equal(t, Both, g.Variants("group1"))
	require.Equal(t, OnlyStandard, g.Variants("group2"))
	for i := range 2 * maxGroups {
		g.Learn(fmt.Sprint(i))
	}
	require.Len(t, g.legacy, maxGroups)
	require.Equal(t, Both, g.Variants("group1"))
}

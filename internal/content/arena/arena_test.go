package arena

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestExtents: an extent keeps its bytes until it is freed, and no later extent gets its offsets.
func TestExtents(t *testing.T) {
	a, err := New("test")
	if err != nil {
		t.Skip(err)
	}
	taken := func() int64 {
		var stat unix.Stat_t
		require.NoError(t, unix.Fstat(int(a.File().Fd()), &stat))
		return stat.Blocks * 512
	}
	first, err := a.Reserve(5000)
	require.NoError(t, err)
	require.Zero(t, taken(), "not before it is written")
	content := bytes.Repeat([]byte("12345"), 1000)
	for off := 0; off < len(content); off += 1000 {
		n, err := first.WriteAt(content[off:off+1000], int64(off))
		require.NoError(t, err)
		require.Equal(t, 1000, n)
	}
	for _, outside := range []int64{-1, 4001, 5000} {
		_, err := first.WriteAt(content[:1000], outside)
		require.ErrorIs(t, err, os.ErrInvalid)
	}
	second, err := a.Reserve(1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, second.Offset, first.Offset+Cost(5000))
	_, err = second.WriteAt([]byte("x"), 0)
	require.NoError(t, err)
	require.Equal(t, Cost(5000)+Cost(1), taken())
	got, err := io.ReadAll(io.NewSectionReader(first.File(), first.Offset, first.Length))
	require.NoError(t, err)
	require.Equal(t, content, got)
	first.Free()
	second.Free()
	require.Zero(t, taken())
	third, err := a.Reserve(1)
	require.NoError(t, err)
	require.Greater(t, third.Offset, second.Offset)
}

// TestProveHoles: no arena is used if a hole writes zeros into bytes that are being sent.
func TestProveHoles(t *testing.T) {
	for _, huge := range []string{"never", "always"} {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "huge="+huge); err != nil {
			t.Skipf("cannot mount: %v", err)
		}
		file, err := os.OpenFile(dir+"/holes", os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		err = proveHoles(file)
		require.NoError(t, file.Close())
		require.NoError(t, unix.Unmount(dir, 0))
		if huge == "never" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errHoles)
		}
	}
}

// TestNoHugePages: the settings of the kernel show whether files in memory may have huge pages.
func TestNoHugePages(t *testing.T) {
	defer func(before []string) { shmemFiles = before }(shmemFiles)
	name := t.TempDir() + "/shmem_enabled"
	shmemFiles = []string{"/nowhere/*/shmem_enabled", name}
	none, err := openSettings()
	require.NoError(t, err)
	require.NoError(t, none.noHugePages(), "a kernel without them")
	require.NoError(t, os.WriteFile(name, nil, 0o600))
	system, err := openSettings() // opened once, and read at each call
	require.NoError(t, err)
	for text, want := range map[string]error{
		"always inherit within_size advise [never]\n": nil, "always [inherit] within_size advise never\n": nil,
		"always within_size [advise] never deny force\n": nil,
		"[always] within_size advise never deny force\n": errHuge, "always [within_size] advise never\n": errHuge,
		"always within_size advise never deny [force]\n": errHuge, "": errHuge,
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		require.ErrorIs(t, system.noHugePages(), want, text)
	}
}

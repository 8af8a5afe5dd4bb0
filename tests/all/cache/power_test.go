package cache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPowerFailure: after a power failure of the host at any moment, under requests and purges, a
// gateway that starts on the same disk serves no wrong byte, and no content that was purged before.
//
// If the test may mount, the disk tier is on ext4 on a loop device, and the disk after the failure
// is a copy of the device: data that the kernel had not written yet is lost, and data that it was
// writing is torn. Otherwise the test tears the files.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	const cuts = 2
	for name, options := range map[string]string{
		"ext4":                    "commit=1",
		"ext4 nodelalloc":         "commit=1,nodelalloc",
		"ext4 data=writeback":     "commit=1,nodelalloc,data=writeback",
		"ext4, a gateway alone":   "commit=1",
		"ext4, alone, nodelalloc": "commit=1,nodelalloc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPowerFailure(t, options, strings.Contains(name, "alone")).play(cuts)
		})
	}
}

// powerFailure is a gateway whose host loses power. A file keeps its size and time when its content
// changes, so that only a purge makes the gateway fetch the new content.
type powerFailure struct {
	*e2e.Fleet
	o      e2e.FleetOptions
	m      *e2e.Member
	disk   *volume
	files  []*cutFile
	random *rand.Rand

	responses, hits, corrupted, purges int
}

// purgedFiles is the number of files that are purged; the others stay on the disk.
const purgedFiles = 10

// cutFile is a file whose content changes.
type cutFile struct {
	id  fdfs.FileID
	now []byte

	mu     sync.Mutex // guards the fields below
	sums   [][32]byte // of all contents; the last one is the sum of now
	purged int        // index of the oldest content that was not purged
}

func newPowerFailure(t *testing.T, options string, alone bool) *powerFailure {
	t.Helper()
	f := &powerFailure{disk: newVolume(t, options), random: e2e.NewRandom(uint64(len(options))),
		o: e2e.FleetOptions{Gateways: 0, Storages: 1, NoRedis: alone}}
	f.Fleet = e2e.StartFleet(t, f.o)
	f.m = f.start(f.disk.dir)
	for i := range 15 {
		content := e2e.RandomContent([]int{700, 5000, 80_000, 300_000, 1_200_000}[i%5])
		id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender,
			Ext: "log", Created: e2e.LongAgo})
		f.files = append(f.files, &cutFile{id: id, now: content, sums: [][32]byte{sha256.Sum256(content)}})
	}
	return f
}

// start starts a gateway with its disk tier in a folder.
func (f *powerFailure) start(dir string) *e2e.Member {
	f.T.Helper()
	o := f.o
	o.Cache = []string{"disk_path = " + dir, "disk_max = 30MB", "mutable_ttl = 10m", "memory_max = 8MB"}
	o.Cache = append(o.Cache, f.o.Cache...)
	return f.Join(o)
}

// play lets the power fail the given number of times.
func (f *powerFailure) play(cuts int) {
	stop, clients := make(chan struct{}), sync.WaitGroup{}
	var asked atomic.Int64
	for i := range 2 {
		clients.Go(func() { f.ask(e2e.NewRandom(uint64(i)), stop, &asked) })
	}
	for n := range cuts {
		for _, x := range f.files {
			require.Equal(f.T, x.now, f.m.Get(e2e.Path(x.id)).Body)
		}
		f.Settled()
		if n%2 == 1 { // otherwise most segments are lost, or half written
			f.m.OnDisk(f.T, len(f.files))
			f.disk.write(f.T)
		}
		for end := time.Now().Add(time.Duration(f.random.Int64N(int64(1500 * time.Millisecond)))); ; {
			f.change(f.files[f.random.IntN(purgedFiles)])
			if time.Now().After(end) {
				break
			}
		}
		after := f.disk.cut(f.T, f.random)
		f.revive(after.dir)
		after.close(f.T)
	}
	close(stop)
	clients.Wait()
	f.T.Logf("%d failures of the power, %d purges before them, %d responses compared, %d of them with bytes from the "+
		"disk, %d corrupted segments found", cuts, f.purges, f.responses+int(asked.Load()), f.hits, f.corrupted)
	require.Positive(f.T, f.hits, "nothing was on the disk: the test says nothing")
}

// ask is a client that sends requests and compares the responses until stop is closed.
func (f *powerFailure) ask(random *rand.Rand, stop chan struct{}, asked *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		x := f.files[random.IntN(len(f.files))]
		from, _ := x.given()
		sum := sha256.Sum256(f.m.Get(e2e.Path(x.id)).Body)
		if _, sums := x.given(); !slices.Contains(sums[from:], sum) {
			f.T.Errorf("wrong bytes of %s", x.id)
			return
		}
		asked.Add(1)
	}
}

// given returns the sums of all contents so far, and the index of the oldest content that a
// response to a new request may have.
func (x *cutFile) given() (from int, sums [][32]byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.purged, x.sums
}

// change replaces the content of a file in the storages, and purges the file.
func (f *powerFailure) change(x *cutFile) {
	next := slices.Clone(x.now)
	for i := 0; i < len(next); i += 1000 {
		next[i] = byte(f.random.Uint32())
	}
	copy(next, fmt.Sprintf("%08x", f.random.Uint32()))
	x.mu.Lock()
	x.now, x.sums = next, append(x.sums, sha256.Sum256(next))
	require.NoError(f.T, f.Cluster.Change(x.id, next, e2e.LongAgo))
	x.mu.Unlock()
	eventually.True(f.T, func() bool {
		status, _ := f.m.AdminPost("/purge?id="+x.id.String(), "")
		return status == 200
	}, "a purge reaches no gateway")
	x.mu.Lock()
	x.purged = len(x.sums) - 1
	x.mu.Unlock()
	f.purges++
}

// revive starts a gateway on the disk after the failure, and compares its responses.
func (f *powerFailure) revive(dir string) {
	f.T.Helper()
	m := f.start(dir)
	for range 2 {
		for _, x := range f.files {
			a := m.Get(e2e.Path(x.id))
			require.Equal(f.T, 200, a.StatusCode)
			require.True(f.T, bytes.Equal(x.now, a.Body), "wrong or purged bytes of %s, from: %s", x.id,
				a.Header.Get("X-Cache"))
			f.responses++
		}
	}
	f.hits += int(m.Metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))
	f.corrupted += int(m.Metric("fdfs_gateway_cache_disk_damaged_total"))
	m.Stop() // the gateway leaves the fleet, so that no purge waits for it
	f.Gateways = f.Gateways[:1]
}

// volume is the disk of a host.
type volume struct {
	dir     string // the mount point
	image   string // the file of the loop device; empty = dir is a plain folder, and the test tears the files
	device  string
	options string
}

// newVolume returns a volume, on a loop device if the test may mount.
func newVolume(t *testing.T, options string) *volume {
	t.Helper()
	v := &volume{dir: t.TempDir(), image: filepath.Join(t.TempDir(), "image"), options: options}
	file, err := os.Create(v.image)
	require.NoError(t, err)
	require.NoError(t, errors.Join(file.Truncate(64<<20), file.Close()))
	out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", v.image).CombinedOutput()
	if err != nil {
		t.Logf("SKIPPED: ext4 on a loop device, the files are torn by the test: %v %s", err, out)
		return &volume{dir: v.dir}
	}
	if err := v.mount(); err != nil {
		t.Logf("SKIPPED: ext4 on a loop device, the files are torn by the test: %v", err)
		return &volume{dir: v.dir}
	}
	t.Cleanup(func() { v.close(t) })
	return v
}

// mount attaches the image to a loop device with direct I/O, which keeps no data in memory, and
// mounts it.
func (v *volume) mount() error {
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", v.image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("losetup: %w: %s", err, out)
	}
	v.device = strings.TrimSpace(string(out))
	if out, err = exec.Command("mount", "-t", "ext4", "-o", v.options, v.device, v.dir).CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("mount: %w: %s", err, out), exec.Command("losetup", "-d", v.device).Run())
	}
	return nil
}

// close unmounts the volume, which must not be in use.
func (v *volume) close(t *testing.T) {
	t.Helper()
	if v.device != "" {
		require.NoError(t, exec.Command("umount", v.dir).Run())
		require.NoError(t, exec.Command("losetup", "-d", v.device).Run())
		v.device = ""
	}
}

// write flushes the data in the memory of the host to the volume, as the kernel does after half a
// minute.
func (v *volume) write(t *testing.T) {
	t.Helper()
	dir, err := os.Open(v.dir)
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, unix.Syncfs(int(dir.Fd())))
}

// cut returns the disk after a power failure at this moment.
func (v *volume) cut(t *testing.T, random *rand.Rand) *volume {
	t.Helper()
	after := &volume{dir: t.TempDir(), options: v.options}
	if v.image == "" {
		tearAll(t, v.dir, after.dir, random)
		return after
	}
	after.image = filepath.Join(t.TempDir(), "image")
	// A copy shows the device at one moment only if nothing was written to it meanwhile.
	eventually.True(t, func() bool {
		before := v.written(t)
		require.NoError(t, exec.Command("cp", "--sparse=always", v.image, after.image).Run())
		return v.written(t) == before
	}, "the disk is never at rest")
	require.NoError(t, after.mount())
	t.Cleanup(func() { after.close(t) })
	return after
}

// written returns the counts of finished writes to the device and of operations in flight.
func (v *volume) written(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(v.device), "stat"))
	require.NoError(t, err)
	fields := strings.Fields(string(text))
	require.Greater(t, len(fields), 8)
	return strings.Join(fields[4:9], " ")
}

// tearAll copies a folder and damages its segments like a power failure: a segment loses its end,
// loses one page, is missing, or is whole.
func tearAll(t *testing.T, from, to string, random *rand.Rand) {
	t.Helper()
	const page = 4096
	_, _ = exec.Command("cp", "-a", from+"/.", to).CombinedOutput() // cp fails on files that were removed meanwhile
	require.NoError(t, filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".seg") {
			return err
		}
		info, err := d.Info()
		require.NoError(t, err)
		switch at := random.Int64N(info.Size()) / page * page; random.IntN(4) {
		case 0:
			return os.Truncate(path, at)
		case 1:
			return os.Remove(path)
		case 2:
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt(make([]byte, min(page, info.Size()-at)), at)
			return errors.Join(err, file.Close())
		}
		return nil
	}))
}

package fdfstest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// goldenRecord is a request and its recorded reply.
type goldenRecord struct {
	Cluster, Name, Phase, Peer, To string
	Cmd                            int
	RequestHex                     string `json:"request_hex"`
	ResponseHex                    string `json:"response_hex"`
	Total                          int    `json:"response_total_len"`
	Truncated                      bool
	BodySHA256                     string `json:"response_body_sha256"`
}

type goldenObject struct {
	Name      string
	FileID    string `json:"file_id"`
	Kind      string
	SHA256    string
	Created   int64            `json:"create_time"`
	StoredOn  []string         `json:"stored_on"`
	Modified  map[string]int64 `json:"mtime"`
	Content   [][]any
	SourceRaw string `json:"source_raw_hex"`
}

func readJSON(t *testing.T, dir, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}

// content makes an object's bytes out of their generators.
func (o goldenObject) content(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, part := range o.Content {
		seed, size := part[1].(string), int(part[2].(float64))
		var b []byte
		for i := 0; len(b) < size; i++ {
			switch part[0] {
			case "bin":
				sum := sha256.Sum256([]byte(seed + ":" + strconv.Itoa(i)))
				b = append(b, sum[:]...)
			case "text":
				b = fmt.Appendf(b, "%s line %06d the quick brown fox jumps over the lazy dog\n", seed, i)
			default:
				t.Fatalf("generator %q", part[0])
			}
		}
		all = append(all, b[:size]...)
	}
	sum := sha256.Sum256(all)
	require.Equal(t, o.SHA256, hex.EncodeToString(sum[:]), o.Name)
	return all
}

// goldenCluster starts a cluster that speaks for the recorded one, and puts its objects.
func goldenCluster(t *testing.T, dir, name string) *Cluster {
	t.Helper()
	o := Options{UseStorageIDs: name == "b", Parameters: map[string]string{"use_trunk_file": "1"}}
	net := "10.77.0.1"
	if name == "b" {
		net, o.Parameters["use_trunk_file"] = "10.77.0.2", "0"
	}
	at := func(host string) StorageSpec { return StorageSpec{Advertise: net + host + ":23000"} }
	o.Groups = []GroupSpec{
		{Name: "group1", StorePaths: 2, Storages: []StorageSpec{at("1"), at("2")}},
		{Name: "group2", Storages: []StorageSpec{at("3")}},
	}
	c := start(t, o)
	var manifest struct{ Objects []goldenObject }
	readJSON(t, dir, filepath.Join(name, "manifest.json"), &manifest)
	for _, object := range manifest.Objects {
		if len(object.StoredOn) == 0 {
			continue // it was deleted
		}
		_, err := c.Put(object.spec(t, c))
		require.NoError(t, err, object.Name)
	}
	return c
}

func (o goldenObject) spec(t *testing.T, c *Cluster) FileSpec {
	t.Helper()
	spec := FileSpec{ID: o.FileID, Content: o.content(t)}
	for _, s := range c.Storages() {
		for _, name := range o.StoredOn {
			if s.Name() == name {
				spec.On = append(spec.On, s)
			}
		}
	}
	spec.Modified = time.Unix(o.Modified[o.StoredOn[0]], 0)
	if o.Kind == "link" {
		spec.Modified = time.Unix(o.Created, 0) // of the link, the manifest has that of its target
	}
	return spec
}

// served are the commands of a gateway. The recorded requests have others too.
var served = []byte{CmdDownload, CmdFileInfo, CmdStorageIDs, CmdParameters, CmdListGroups, CmdListServers, CmdActive}

// TestGolden holds the replies to the recorded requests of a gateway against the recorded replies.
func TestGolden(t *testing.T) {
	dir := golden.Dir(t)
	var records []goldenRecord
	readJSON(t, dir, "protocol.json", &records)
	for _, name := range []string{"a", "b"} {
		c := goldenCluster(t, dir, name)
		for _, phase := range []string{"up", "lag"} {
			if phase == "lag" { // s2 was stopped, and its tracker knew
				c.Storage(1).Kill()
				c.Storage(1).SetOnline(false)
			}
			count, total := map[string]int{}, 0
			for _, r := range records {
				if r.Cluster == name && r.Phase == phase && slices.Contains(served, byte(r.Cmd)) {
					count[c.holdGolden(t, r)]++
					total++
				}
			}
			t.Logf("cluster %s, phase %s, %d recorded requests: %v", name, phase, total, count)
			require.Greater(t, count["equal"], total*8/10)
		}
	}
}

// holdGolden compares one reply and says how it agreed.
func (c *Cluster) holdGolden(t *testing.T, r goldenRecord) string {
	t.Helper()
	request, err := hex.DecodeString(r.RequestHex)
	require.NoError(t, err)
	want, err := hex.DecodeString(r.ResponseHex)
	require.NoError(t, err)
	addr := c.Tracker(0).Addr()
	for _, s := range c.Storages() {
		if s.Name() == r.To {
			addr = s.Addr()
		}
	}
	got := exchange(t, addr, request)
	where := fmt.Sprintf("%s %s to %s", r.Cluster, r.Name, r.To)
	if r.Name == "bad_length_huge" && r.To == "t" {
		require.Empty(t, got, where) // the real one cuts the length to 32 bits and replies
		return "closed for an over-long length"
	}
	if list := statistics[byte(r.Cmd)]; list.size > 0 && len(want) > headerLen {
		list.same(t, want[headerLen:], got[headerLen:], where)
		require.Len(t, got, r.Total, where)
		return "equal but for statistics"
	}
	sameBytes(t, r, want, got, where)
	return "equal"
}

func sameBytes(t *testing.T, r goldenRecord, want, got []byte, where string) {
	t.Helper()
	require.Len(t, got, r.Total, where)
	if r.Truncated {
		sum := sha256.Sum256(got[headerLen:])
		require.Equal(t, r.BodySHA256, hex.EncodeToString(sum[:]), where)
		got = got[:len(want)]
	}
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got), where)
}

// records are those of a list, with the parts [from, to) that a fake cannot know.
type records struct {
	size  int
	parts [][2]int
}

var statistics = map[byte]records{
	CmdListGroups:  {113, [][2]int{{17, 33}, {41, 49}, {81, 89}, {105, 113}}},
	CmdListServers: {487, [][2]int{{34, 50}, {58, 90}, {142, 487}}},
}

// same compares lists without their statistics. want may be cut.
func (l records) same(t *testing.T, want, got []byte, where string) {
	t.Helper()
	require.Zero(t, len(got)%l.size, where)
	for start := 0; start < len(got); start += l.size {
		for _, part := range l.parts {
			clear(got[start+part[0] : start+part[1]])
			if len(want) > start+part[0] {
				clear(want[start+part[0] : min(len(want), start+part[1])])
			}
		}
	}
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got[:len(want)]), where)
}

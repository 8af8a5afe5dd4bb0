package fdfstest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// content generates the content of an object.
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

// goldenCluster starts a cluster like the recorded one, with its files.
func goldenCluster(t *testing.T, name string) *Cluster {
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
	golden.Read(t, name+"/manifest.json", &manifest)
	for _, object := range manifest.Objects {
		if len(object.StoredOn) == 0 {
			continue // the object was deleted
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
		spec.Modified = time.Unix(o.Created, 0) // of the link; the manifest has the time of its target
	}
	return spec
}

// notSent are the commands that no gateway sends: metadata of a file, id of a storage, one group,
// and storages for uploads, downloads and updates.
var notSent = []int{15, 70, 90, 101, 102, 103, 105}

// TestGolden: a recorded request gets the recorded reply.
func TestGolden(t *testing.T) {
	var records []goldenRecord
	golden.Read(t, "protocol.json", &records)
	for _, name := range []string{"a", "b"} {
		c := goldenCluster(t, name)
		for _, phase := range []string{"up", "lag"} {
			if phase == "lag" { // s2 was stopped, and the tracker had noticed
				c.Storage(1).Kill()
				c.Storage(1).SetOnline(false)
			}
			held := 0
			for _, r := range records {
				if r.Cluster == name && r.Phase == phase && !slices.Contains(notSent, r.Cmd) {
					c.holdGolden(t, r)
					held++
				}
			}
			require.Greater(t, held, 30)
		}
	}
}

// holdGolden sends one recorded request and compares the reply.
func (c *Cluster) holdGolden(t *testing.T, r goldenRecord) {
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
		require.Empty(t, got, where) // a real tracker cuts the length to 32 bits and replies
		return
	}
	require.Len(t, got, r.Total, where)
	if statistics[byte(r.Cmd)] != nil && len(want) > headerLen {
		sameRecords(t, byte(r.Cmd), want[headerLen:], got[headerLen:], where)
		return
	}
	if r.Truncated {
		sum := sha256.Sum256(got[headerLen:])
		require.Equal(t, r.BodySHA256, hex.EncodeToString(sum[:]), where)
		got = got[:len(want)]
	}
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got), where)
}

// statistics are the parts [from, to) of a record that the cluster cannot reproduce.
var statistics = map[byte][][2]int{
	CmdListGroups:  {{17, 33}, {41, 49}, {81, 89}, {105, 113}},
	CmdListServers: {{34, 50}, {58, 90}, {142, 487}},
}

// sameRecords compares lists without their statistics. want may be truncated.
func sameRecords(t *testing.T, command byte, want, got []byte, where string) {
	t.Helper()
	size := 487
	if command != CmdListServers {
		size = 113
	}
	require.Zero(t, len(got)%size, where)
	for start := 0; start < len(got); start += size {
		for _, part := range statistics[command] {
			clear(got[start+part[0] : start+part[1]])
			if len(want) > start+part[0] {
				clear(want[start+part[0] : min(len(want), start+part[1])])
			}
		}
	}
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got[:len(want)]), where)
}

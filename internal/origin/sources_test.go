package origin

import (
	"net/netip"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tracker"

	"github.com/stretchr/testify/require"
)

// members returns the members of a list of storage ids, without a tracker.
func members(t *testing.T, lines ...string) *tracker.Members {
	t.Helper()
	o := tracker.Options{Parameters: tracker.Parameters{UseStorageID: true}}
	for _, line := range lines {
		id, err := fdfs.ParseStorageIDLine(line)
		require.NoError(t, err)
		o.StorageIDs = append(o.StorageIDs, id)
	}
	c := tracker.New(o)
	t.Cleanup(c.Close)
	<-c.Loaded()
	return c.Members()
}

func TestSourceOf(t *testing.T) {
	listed := []string{"100001 group1 10.0.0.1", "100002 group1 10.0.0.2:24000", "100003 group2 10.0.0.3,192.168.0.3",
		"100004 group1 storage4.test", "100005 group1 [2001:db8::5]:23000"}
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	self := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.168.0.3")}
	for _, tt := range []struct {
		name    string
		o       SourcesOptions
		ids     []string
		address string
		number  uint32
		want    client.Server
		status  SourceStatus
	}{
		{"storage id", SourcesOptions{}, listed, "", 100001, client.Server{Host: "10.0.0.1", Port: 23000},
			SourceAllowed},
		{"storage id with a port", SourcesOptions{}, listed, "", 100002, client.Server{Host: "10.0.0.2", Port: 24000},
			SourceAllowed},
		{"storage id with a host name", SourcesOptions{}, listed, "", 100004,
			client.Server{Host: "storage4.test", Port: 23000}, SourceAllowed},
		{"storage id with IPv6", SourcesOptions{}, listed, "", 100005, client.Server{Host: "2001:db8::5", Port: 23000},
			SourceAllowed},
		{"unknown storage id", SourcesOptions{}, listed, "", 7, client.Server{}, SourceUnknown},
		{"this host", SourcesOptions{LocalIPs: self}, listed, "", 100001, client.Server{Host: "10.0.0.1", Port: 23000},
			SourceSelf},
		{"this host by its second address", SourcesOptions{LocalIPs: self},
			[]string{"100003 group1 10.0.0.3,192.168.0.3"}, "", 100003, client.Server{Host: "10.0.0.3", Port: 23000},
			SourceSelf},
		{"another group's storage id", SourcesOptions{}, listed, "", 100003,
			client.Server{Host: "10.0.0.3", Port: 23000}, SourceNotAllowed},
		{"another group's address", SourcesOptions{}, listed, "10.0.0.3", 0,
			client.Server{Host: "10.0.0.3", Port: 23000}, SourceNotAllowed},
		{"not listed, and trackers are down", SourcesOptions{Trackers: true}, nil, "10.0.0.99", 0,
			client.Server{Host: "10.0.0.99", Port: 23000}, SourceNotAllowed},
		{"listed address", SourcesOptions{}, listed, "10.0.0.2", 0, client.Server{Host: "10.0.0.2", Port: 24000},
			SourceAllowed},
		{"unlisted host beside a list", SourcesOptions{}, listed, "10.0.0.99", 0,
			client.Server{Host: "10.0.0.99", Port: 23000}, SourceNotAllowed},
		{"allowed by the operator", SourcesOptions{Allow: prefix("10.0.0.99/32")}, listed, "10.0.0.99", 0,
			client.Server{Host: "10.0.0.99", Port: 23000, Unlisted: true}, SourceAllowed},
		{"not allowed by the operator", SourcesOptions{Allow: prefix("10.0.0.98/32")}, nil, "10.0.0.99", 0,
			client.Server{Host: "10.0.0.99", Port: 23000}, SourceNotAllowed},
		{"nothing is known", SourcesOptions{}, nil, "10.0.0.99", 0, client.Server{Host: "10.0.0.99", Port: 23000},
			SourceNotAllowed},
		{"this host, in an address", SourcesOptions{LocalIPs: self}, nil, "10.0.0.1", 0,
			client.Server{Host: "10.0.0.1", Port: 23000}, SourceSelf},
		{"mapped", SourcesOptions{AddressMap: map[string]string{"172.16.0.1": "10.9.9.9"}}, listed, "172.16.0.1", 0,
			client.Server{Host: "10.9.9.9", Port: 23000}, SourceAllowed},
		{"mapped with a port", SourcesOptions{AddressMap: map[string]string{"172.16.0.1": "10.9.9.9:99"}}, listed,
			"172.16.0.1", 0, client.Server{Host: "10.9.9.9", Port: 99}, SourceAllowed},
		{"storage id, mapped", SourcesOptions{AddressMap: map[string]string{"10.0.0.1": "10.9.9.9"}}, listed, "",
			100001, client.Server{Host: "10.9.9.9", Port: 23000}, SourceAllowed},
		{"port of the group", SourcesOptions{Ports: map[string]int{"group1": 25000}, Allow: prefix("10.0.0.0/8")}, nil,
			"10.0.0.99", 0, client.Server{Host: "10.0.0.99", Port: 25000, Unlisted: true}, SourceAllowed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.HasStore = func(group string) bool { return group == "group1" }
			if tt.ids != nil {
				tt.o.Members = members(t, tt.ids...)
			}
			got, status := NewSources(tt.o).Of(fdfstest.IDFrom(t, "group1", tt.address, tt.number))
			require.Equal(t, tt.status, status)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestReplicas(t *testing.T) {
	o := SourcesOptions{Members: members(t, "100001 group1 10.0.0.1", "100002 group1 10.0.0.2,192.168.0.2:24000",
		"100003 group2 10.0.0.3", "100004 group1 10.0.0.4"),
		LocalIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, HasStore: func(group string) bool {
			return group == "group1"
		}, AddressMap: map[string]string{"10.0.0.4": "10.0.0.44"}}
	s := NewSources(o)
	list := s.Replicas("group1")
	require.ElementsMatch(t, []client.Server{{Host: "10.0.0.2", Port: 24000}, {Host: "10.0.0.44", Port: 23000}},
		list[:2])
	require.Equal(t, []client.Server{{Host: "192.168.0.2", Port: 24000}}, list[2:], "second addresses come last")
	require.Empty(t, s.Replicas("group9"))
	require.True(t, s.mayExist("group2"))
	require.False(t, s.mayExist("group9"))
	require.True(t, NewSources(SourcesOptions{}).mayExist("group9"), "no list denies it")
}

// TestStorageOfThisHost: a storage on the host of the gateway is a source like any other, unless
// the gateway reads its store paths itself or would send requests to its own web server.
func TestStorageOfThisHost(t *testing.T) {
	o := SourcesOptions{Members: members(t, "100001 group1 10.0.0.1"),
		LocalIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	status := func(o SourcesOptions) SourceStatus {
		s := NewSources(o)
		_, status := s.Of(fdfstest.IDFrom(t, "group1", "10.0.0.1", 0))
		require.Equal(t, status == SourceAllowed, len(s.Replicas("group1")) == 1)
		return status
	}
	require.Equal(t, SourceAllowed, status(o))
	o.HasStore = func(group string) bool { return group == "group2" }
	require.Equal(t, SourceAllowed, status(o))
	o.HasStore = func(group string) bool { return group == "group1" }
	require.Equal(t, SourceSelf, status(o))
	o.HasStore, o.Web = nil, true
	require.Equal(t, SourceSelf, status(o))
}

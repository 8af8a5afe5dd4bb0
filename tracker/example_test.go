package tracker_test

import (
	"context"
	"fmt"
	"net/netip"

	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tracker"
)

// A query, and what is known without one.
func Example() {
	cluster, err := fdfstest.Start(fdfstest.Options{Trackers: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	c := tracker.New(tracker.Options{Trackers: [][]string{{cluster.Trackers()[0]}, {cluster.Trackers()[1]}}})
	defer c.Close()
	storages, err := c.Storages(context.Background(), "group1")
	fmt.Println(len(storages), "storages:", err)

	<-c.Loaded()
	members := c.Members()
	_, ok := members.ByAddr("group1", storages[0].Addr)
	fmt.Println("a storage:", ok)
	_, ok = members.ByAddr("group1", netip.MustParseAddr("192.0.2.1"))
	fmt.Println("another host:", ok)
	// Output:
	// 2 storages: <nil>
	// a storage: true
	// another host: false
}

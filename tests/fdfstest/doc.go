// Package fdfstest is a FastDFS tracker and its storages on real TCP, for tests and demonstrations.
//
// A cluster replies to the requests of a download gateway as FastDFS 6.16 does, byte for byte, from
// files that the test puts into it. On demand it fails as networks and servers fail:
//
//	cluster, err := fdfstest.Start(fdfstest.Options{}) // a tracker, group1 with two storages, group2 with one
//	...
//	defer cluster.Close()
//	id, err := cluster.Put(fdfstest.FileSpec{Group: "group1", Content: []byte("hello"), Ext: "txt"})
//	connect(cluster.Trackers())                   // host:port
//	cluster.Storage(0).SetFaults(fdfstest.Faults{ // the next download breaks off after two bytes
//		Commands: []byte{fdfstest.CmdDownload}, Times: 1, BreakAt: new(2),
//	})
//	cluster.Storage(1).Kill()   // connections are refused; Revive brings it back on the same address
//	cluster.Downloads(id).Bytes // bytes that were sent of a file
//
// Storages listen on different addresses, 127.0.0.11 and up, and on one port, because a file id
// names its source by an IPv4 address without a port. Nothing is written to disk.
//
// The package does not implement requests that no gateway sends, such as uploads and metadata, nor
// replication over time (FileSpec.On names the storages that have a file). The statistics in the
// lists of groups and storages are zero or invented.
package fdfstest

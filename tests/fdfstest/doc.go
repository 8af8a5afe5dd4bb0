// Package fdfstest is a FastDFS tracker and its storages on real TCP, for tests and demonstrations.
//
// It serves what a download gateway requests, byte for byte as FastDFS 6.16 does, from files
// that are put into it, and it can be made to fail in the ways that networks and servers fail:
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
//	cluster.Downloads(id).Bytes // how much was sent of a file
//
// Storages listen on addresses of their own, 127.0.0.11 and up, and on one port, because a file
// id names its source by an IPv4 address only. Nothing is written to disk.
//
// What it does not have: requests that no gateway sends, such as uploads and metadata, replication
// that takes time (FileSpec.On says what has arrived where), and the statistics in the lists of
// groups and storages, which are zero or made up.
package fdfstest

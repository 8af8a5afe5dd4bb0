// Command runcluster runs gateways in front of a FastDFS cluster, all on loopback: a tracker, three
// storages in two groups, and three gateways without a store, which share a Redis if redis-server
// is installed. The command needs the built gateway:
//
//	runcluster -gateway bin/gateway
//
// The index page shows the files, has buttons that kill and start gateways and storages, and
// describes the effects.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/tools/demo"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
)

func main() {
	gateway := flag.String("gateway", "bin/gateway", "the built gateway")
	flag.Parse()
	if err := run(*gateway); err != nil {
		fmt.Fprintln(os.Stderr, "runcluster:", err)
		os.Exit(1)
	}
}

// ports are the ports of the gateways. Their admin listeners are on ports that are adminAbove
// higher.
var ports = []int{8881, 8882, 8883}

const adminAbove = 10

// pagePort is the port of the index page.
const pagePort = 8880

func run(gateway string) error {
	dir, err := os.MkdirTemp("", "fastdfs-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cluster, err := fdfstest.Start(fdfstest.Options{})
	if err != nil {
		return err
	}
	defer cluster.Close()
	files, err := fill(cluster, dir)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	redis, stopRedis, err := startRedis(dir)
	if err != nil {
		return err
	}
	defer stopRedis()
	s := &site{addr: lab.Address(pagePort), redis: redis, files: pageFiles(files)}
	for _, storage := range cluster.Storages() {
		s.storages = append(s.storages, &storageNode{Storage: storage})
	}
	for _, port := range ports {
		g := &gatewayNode{o: lab.GatewayOptions{Binary: gateway, Dir: dir, Trackers: cluster.Trackers(), Redis: redis,
			Port: port, Admin: port + adminAbove,
			Peers: lab.Port()}}
		if err := g.start(); err != nil {
			return err
		}
		defer func() { g.Stop() }() // the process that runs at the end
		s.gateways = append(s.gateways, g)
	}
	ln, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	server := http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }() // ends with Close
	defer server.Close()
	show(cluster, files, redis)
	select {
	case err := <-served:
		return err
	case <-signals:
		return nil
	}
}

// startRedis starts the Redis that makes the gateways a fleet. Without redis-server each gateway
// fetches for itself.
func startRedis(dir string) (addr string, stop func(), err error) {
	redis, err := lab.StartRedis(dir)
	switch {
	case errors.Is(err, lab.ErrMissing):
		say("redis-server is not installed (apt-get install redis-server): each gateway fetches for itself")
		return "", func() {}, nil
	case err != nil:
		return "", nil, err
	}
	return redis.Addr, redis.Stop, nil
}

// file is a file of the cluster.
type file struct {
	title i18n.Text
	id    fdfs.FileID
}

// fill puts the files of the demonstration store into the cluster, in both groups.
func fill(cluster *fdfstest.Cluster, dir string) ([]file, error) {
	store, err := demo.Write(filepath.Join(dir, "store"), time.Now(), demo.Options{})
	if err != nil {
		return nil, err
	}
	local,
		err := local.Open(local.Options{Groups: []local.GroupPaths{{Name: demo.Group,
		StorePaths: store.StorePaths}}})
	if err != nil {
		return nil, err
	}
	defer local.Close()
	var files []file
	for i, f := range store.Files {
		if f.ID.Kind == fdfs.KindSlave {
			continue
		}
		content, err := read(local, f.ID)
		if err != nil {
			return nil, err
		}
		id, err := cluster.Put(fdfstest.FileSpec{Group: fmt.Sprintf("group%d", i%2+1), Content: content,
			Kind: f.ID.Kind, Ext: f.ID.Ext(), Created: time.Now()})
		if err != nil {
			return nil, err
		}
		files = append(files, file{f.Title, id})
	}
	return files, nil
}

func read(local *local.Store, id fdfs.FileID) ([]byte, error) {
	f, err := local.Open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return contenttest.ReadAll(f, f.Size())
}

// lang is the language of the page and of the terminal.
var lang = i18n.FromEnvironment(os.Getenv)

// say prints a line.
func say(format string, args ...any) { fmt.Println(i18n.Sprintf(format, args...).In(lang)) }

// show prints the addresses and files of the cluster, and commands to try.
func show(cluster *fdfstest.Cluster, files []file, redis string) {
	say("\nOpen in a browser, to kill parts of the cluster and to watch:\n\n  http://%s/", lab.Address(pagePort))
	say("\nA tracker (%s) and three storages:", strings.Join(cluster.Trackers(), ", "))
	for _, s := range cluster.Storages() {
		fmt.Printf("  %s  %s\n", s.Addr(), s.Group())
	}
	say("\nGateways without a store of their own, and their admin listeners:")
	for _, port := range ports {
		fmt.Printf("  http://%s   http://%s/status\n", lab.Address(port), lab.Address(port+adminAbove))
	}
	if redis != "" {
		say("\nThey share the Redis on %s: what one has fetched, the others get from it.", redis)
	}
	say("\nFiles, on any of them:")
	for i, f := range files {
		fmt.Printf("  %-16s http://%s/%s\n", f.title.In(lang), lab.Address(ports[i%len(ports)]), f.id)
	}
	first, second, admin := lab.Address(ports[0]), lab.Address(ports[1]), lab.Address(ports[0]+adminAbove)
	id := files[0].id
	say("\nX-Cache says where a file came from: MISS from a storage, HIT out of the gateway's cache, PEER from " +
		"another gateway,\nalso where that one, the owner of the file, had to fetch it first, as after a purge.")
	fmt.Printf("  curl -sD- -o/dev/null http://%[1]s/%[3]s\n  curl -sD- -o/dev/null http://%[2]s/%[3]s\n",
		first, second, id)
	say("All gateways forget a file, and fetch one again:")
	fmt.Printf("  curl -X POST 'http://%[1]s/purge?id=%[2]s'\n  curl -d %[2]s http://%[1]s/prefetch\n", admin, id)
	say("Why: curl 'http://%s/explain?url=%s&lang=%s'", admin, id, lang)
	say("Stop with Ctrl-C.")
}

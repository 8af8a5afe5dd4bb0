// Command runcluster shows gateways in front of a FastDFS cluster, all on loopback: a tracker, three storages in two groups, and
// two gateways without a store of their own. It needs nothing but the built gateway:
//
//	runcluster -gateway bin/gateway
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fastdfs-gateway/internal/demo"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
	"fastdfs-gateway/tests/fdfstest"
)

func main() {
	gateway := flag.String("gateway", "bin/gateway", "the built gateway")
	flag.Parse()
	if err := run(*gateway); err != nil {
		fmt.Fprintln(os.Stderr, "runcluster:", err)
		os.Exit(1)
	}
}

// ports are those of the two gateways, and of their admin listeners behind them.
var ports = []int{8881, 8882}

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
	ended := make(chan error, len(ports))
	for _, port := range ports {
		stop, err := startGateway(gateway, dir, cluster, port, ended)
		if err != nil {
			return err
		}
		defer stop()
	}
	show(cluster, files)
	select {
	case err := <-ended:
		return errors.Join(errors.New("a gateway has ended"), err)
	case <-signals:
		return nil
	}
}

// file is one that was put into the cluster.
type file struct {
	title string
	id    fdfs.FileID
}

// fill puts the files of the demonstration store into the cluster, in both groups.
func fill(cluster *fdfstest.Cluster, dir string) ([]file, error) {
	store, err := demo.Write(filepath.Join(dir, "store"), time.Now(), demo.Options{})
	if err != nil {
		return nil, err
	}
	local, err := storage.OpenLocal(storage.Options{Groups: []storage.GroupPaths{{Name: demo.Group, StorePaths: store.StorePaths}}})
	if err != nil {
		return nil, err
	}
	defer local.Close()
	var files []file
	for i, f := range store.Files[1:] { // the first is a page about the demonstration store
		if f.ID.Kind == fdfs.KindSlave {
			continue
		}
		content, err := read(local, f.ID)
		if err != nil {
			return nil, err
		}
		id, err := cluster.Put(fdfstest.FileSpec{Group: fmt.Sprintf("group%d", i%2+1), Content: content, Kind: f.ID.Kind, Ext: f.ID.Ext(), Created: time.Now()})
		if err != nil {
			return nil, err
		}
		files = append(files, file{f.Title, id})
	}
	return files, nil
}

func read(local *storage.Local, id fdfs.FileID) ([]byte, error) {
	f, err := local.Open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content := make([]byte, f.Size())
	_, err = f.ReadAt(content, 0)
	return content, err
}

// startGateway starts one gateway, which is told to stop by the function returned.
func startGateway(binary, dir string, cluster *fdfstest.Cluster, port int, ended chan<- error) (stop func(), err error) {
	conf := filepath.Join(dir, fmt.Sprintf("gateway-%d.conf", port))
	text := fmt.Sprintf("base_path = %s\nstore_path_count = 0\ngroup_name = group1\nurl_have_group_name = true\nconnect_timeout = 2\nnetwork_timeout = 10\n%s"+
		"http.mime_types_filename = %s/store/conf/mime.types\n[gateway]\nlisten = 127.0.0.1:%d\nadmin_listen = 127.0.0.1:%d\nx_cache = true\n",
		dir, "tracker_server = "+strings.Join(cluster.Trackers(), "\ntracker_server = ")+"\n", dir, port, port+10)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "-c", conf)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		ended <- cmd.Wait()
		close(done)
	}()
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-done
	}, nil
}

// show prints what there is to try.
func show(cluster *fdfstest.Cluster, files []file) {
	time.Sleep(500 * time.Millisecond) // the gateways' own first lines
	fmt.Printf("\nA tracker (%s) and three storages:\n", strings.Join(cluster.Trackers(), ", "))
	for _, s := range cluster.Storages() {
		fmt.Printf("  %s  %s\n", s.Addr(), s.Group())
	}
	fmt.Println("\nTwo gateways without a store of their own, on ports 8881 and 8882:")
	for i, f := range files {
		fmt.Printf("  %-16s http://127.0.0.1:%d/%s\n", f.title, ports[i%len(ports)], f.id)
	}
	fmt.Printf("\nWhy: curl 'http://127.0.0.1:%d/explain?url=%s'\nStop with Ctrl-C.\n", ports[0]+10, files[0].id)
}

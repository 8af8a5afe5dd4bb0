package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/real/client"
)

var errUsage = errors.New("arguments are missing")

// tool is one of the client programs. args are those behind the configuration file.
func tool(name string, args []string, c conf) error {
	need := map[string]int{"fdfs_upload_file": 1, "fdfs_upload_appender": 1, "fdfs_append_file": 2,
		"fdfs_delete_file":         1,
		"fdfs_regenerate_filename": 1}
	if n, known := need[name]; !known {
		return fmt.Errorf("there is no stand-in for %s", name)
	} else if len(args) < n {
		return errUsage
	}
	switch name {
	case "fdfs_upload_file", "fdfs_upload_appender":
		return uploadTool(name, args, c)
	case "fdfs_append_file":
		content, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		addr, err := sourceOf(c, args[0])
		if err != nil {
			return err
		}
		return client.Append(addr, args[0], content)
	}
	addr, err := sourceOf(c, args[0])
	if err != nil {
		return err
	}
	if name == "fdfs_delete_file" {
		return client.Delete(addr, args[0])
	}
	return printID(client.Regenerate(addr, args[0]))
}

func uploadTool(name string, args []string, c conf) error {
	content, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var addr string
	if len(args) > 1 {
		addr = args[1]
	} else if addr, err = anyStorage(c); err != nil {
		return err
	}
	index := 0
	if len(args) > 2 {
		if index, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
	}
	upload := client.Upload
	if name == "fdfs_upload_appender" {
		upload = client.UploadAppender
	}
	return printID(upload(addr, byte(index), strings.TrimPrefix(filepath.Ext(args[0]), "."), content))
}

func printID(id string, err error) error {
	if err == nil {
		fmt.Println(id)
	}
	return err
}

const cmdStore fdfs.Command = 101 // a tracker names a storage for an upload

func anyStorage(c conf) (string, error) {
	answer, err := client.Call(c.get("tracker_server"), cmdStore, nil)
	if err != nil || len(answer) < 2 {
		return "", errors.Join(err, errUsage)
	}
	return firstServer(answer[:len(answer)-1])
}

// sourceOf is the storage that may change a file.
func sourceOf(c conf, id string) (string, error) {
	const cmdUpdate fdfs.Command = 103
	parsed, err := fdfs.Parse(id)
	if err != nil {
		return "", err
	}
	answer, err := client.Call(c.get("tracker_server"), cmdUpdate, fdfs.AppendFile(nil, parsed))
	if err != nil {
		return "", err
	}
	return firstServer(answer)
}

// firstServer reads an answer that names one server: group (16 bytes), address (15 or 45) and port
// (8).
func firstServer(answer []byte) (string, error) {
	const group, port = 16, 8
	if len(answer) != group+15+port && len(answer) != group+45+port {
		return "", fmt.Errorf("%w: %d bytes do not name a server", fdfs.ErrProtocol, len(answer))
	}
	end := len(answer) - port
	host := strings.TrimRight(string(answer[group:end]), "\x00")
	return net.JoinHostPort(host, strconv.FormatUint(binary.BigEndian.Uint64(answer[end:]), 10)), nil
}

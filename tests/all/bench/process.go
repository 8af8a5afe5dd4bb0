package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/tests/lab"
)

// process is a running server with its worker processes.
type process struct {
	*lab.Process
	admin string // of a gateway: its admin listener
	tls   bool
}

// url returns the URL of a path.
func (p *process) url(path string) string {
	if p.tls {
		return "https://" + p.Addr + path
	}
	return "http://" + p.Addr + path
}

// usage is the sum of the resources that the processes of a server use.
type usage struct {
	cpu time.Duration // user and system time since it began
	rss int64         // resident bytes; pages that processes share count for each
}

// usage reads the usage of the server from /proc.
func (p *process) usage() (usage, error) { return usageOf(p.PID()) }

// usageOf returns the usage of a process and its children.
func usageOf(pid int) (usage, error) {
	var u usage
	for _, pid := range append([]int{pid}, children(pid)...) {
		if err := u.add(pid); err != nil {
			return u, fmt.Errorf("cannot tell what process %d takes: %w", pid, err)
		}
	}
	return u, nil
}

// children returns the processes that a process has started itself.
func children(pid int) (list []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, name := range lists {
		text, _ := os.ReadFile(name) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// tick is the unit of processor time in /proc (USER_HZ), the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Indexes of fields of /proc/PID/stat behind the name of the program, which may contain blanks
// (proc(5)).
const (
	statUser   = 14 - 3
	statSystem = 15 - 3
	statRSS    = 24 - 3
)

// add adds the usage of one process.
func (u *usage) add(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var numbers [3]int64
	for i, at := range []int{statUser, statSystem, statRSS} {
		if at >= len(fields) {
			return fmt.Errorf("its stat has %d fields", len(fields))
		}
		if numbers[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return err
		}
	}
	u.cpu += time.Duration(numbers[0]+numbers[1]) * tick
	u.rss += numbers[2] * int64(os.Getpagesize())
	return nil
}

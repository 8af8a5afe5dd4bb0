// Command standin takes the place of the programs of FastDFS when the harness is tested:
// fdfs_trackerd, fdfs_storaged, the client tools and an nginx with the module, by the name it is
// called by. It reads their configuration files, understands start, stop and restart, and leaves
// its terminal as they do. It stores files on disk in the layout of FastDFS, packed ones too, and
// gives them to the other storages of the group; the tracker's answers are those of package
// fdfstest. It is no FastDFS: it loses what was not yet replicated when it is killed, and it trusts
// its clients.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	name := filepath.Base(os.Args[0])
	if err := run(name, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	if len(args) == 0 {
		return errors.New("the first argument is the configuration file")
	}
	if name == "nginx" {
		return nginx(args)
	}
	c, err := readConf(args[0])
	if err != nil {
		return err
	}
	switch name {
	case "fdfs_trackerd", "fdfs_storaged":
		return daemon(name, args, c)
	}
	return tool(name, args[1:], c)
}

// inBackground is set in the environment of the process that serves.
const inBackground = "STANDIN_IN_BACKGROUND"

// daemon does what the second argument says, start when there is none.
func daemon(name string, args []string, c conf) error {
	pidFile := filepath.Join(c.get("base_path"), "data", name+".pid")
	if err := os.MkdirAll(filepath.Dir(pidFile), 0o755); err != nil {
		return err
	}
	verb := "start"
	if len(args) > 1 {
		verb = args[1]
	}
	switch {
	case verb == "stop":
		return stop(pidFile)
	case verb == "restart":
		if err := stop(pidFile); err != nil {
			return err
		}
		return start(name, args[0])
	case verb != "start":
		return fmt.Errorf("%q is none of start, stop, restart", verb)
	case os.Getenv(inBackground) == "":
		return start(name, args[0])
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	if name == "fdfs_trackerd" {
		return serveTracker(c)
	}
	return serveStorage(c)
}

// start leaves a process in a session of its own behind, as a daemon does.
func start(name, confFile string) error {
	cmd := exec.Command("/proc/self/exe", confFile, "start")
	cmd.Args[0] = name
	cmd.Env = append(os.Environ(), inBackground+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// stop ends the process that the file names, and waits for its end.
func stop(pidFile string) error {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	for signal := syscall.SIGTERM; syscall.Kill(pid, signal) == nil; signal = 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return os.Remove(pidFile)
}

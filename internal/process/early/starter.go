package early

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// StarterCommand is the subcommand that runs a starter: it starts the program at each request of
// its gateway, until the gateway ends. Its arguments are the path of the program file, its argv[0],
// and its arguments.
const StarterCommand = "starter"

// UpgradeVariable is the environment variable of a process that replaces another one: descriptors
// of its connections to that process and to older ones. The variable marks inherited sockets, since
// LISTEN_PID cannot: the id of the new process is not known before it runs.
const UpgradeVariable = "GATEWAY_UPGRADE"

// Messages of the starter: a word, a blank, and an argument.
const (
	MessageStart   = "start"   // to the starter: start the program; with number, names and descriptors of sockets
	MessageKill    = "kill"    // to the starter: kill the process with this id
	MessageStarted = "started" // from the starter: the id of the process
	MessageEnded   = "ended"   // from the starter: id and state of a process
	MessageFailed  = "failed"  // with the reason
)

// Limits of messages.
const (
	MaxMessage = 64 << 10
	MaxSockets = 200 // SCM_MAX_FD of Linux is 253
)

// gatewayFd is the descriptor of the connection to the gateway, whose messages have boundaries.
const gatewayFd = 3

// starter starts one program with one set of arguments.
type starter struct {
	program string
	args    []string // with argv[0]

	mu      sync.Mutex
	running map[int]*os.Process // by process id
}

// runStarter returns the exit code.
func runStarter(args []string) int {
	// These signals are meant for the gateways. They are caught and not ignored, since the new
	// process would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	syscall.CloseOnExec(gatewayFd)
	if err := syscall.SetNonblock(gatewayFd, false); err != nil {
		return fail("cannot talk to the gateway: " + err.Error())
	}
	s := &starter{program: args[0], args: args[1:], running: map[int]*os.Process{}}
	buf, rights := make([]byte, MaxMessage), make([]byte, syscall.CmsgSpace(4*(MaxSockets+1)))
	for {
		n, nr, _, _, err := syscall.Recvmsg(gatewayFd, buf, rights, syscall.MSG_CMSG_CLOEXEC)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || n == 0: // the gateway has ended
			return 0
		}
		word, text := cut(string(buf[:n]), ' ')
		switch word {
		case MessageKill:
			s.kill(text)
		case MessageStart:
			s.start(text, descriptors(rights[:nr]))
		}
	}
}

func fail(text string) int {
	_, _ = os.Stderr.WriteString("gateway: " + text + "\n")
	return 1
}

// send sends a message. If that fails, the gateway has ended.
func send(word, text string) { _ = syscall.Sendmsg(gatewayFd, []byte(word+" "+text), nil, nil, 0) }

// descriptors returns the descriptors of a message.
func descriptors(rights []byte) []int {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, _ := syscall.ParseUnixRights(&messages[0]) // start counts them
	return fds
}

// kill ends a process that this starter has started.
func (s *starter) kill(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if process := s.running[number(text)]; process != nil { // -1 if malformed, which is no process id
		_ = process.Kill() // fails if it has just ended
	}
}

// start starts a process, and reports its end.
func (s *starter) start(text string, fds []int) {
	process, err := s.startProgram(text, fds)
	if err != "" {
		send(MessageFailed, err)
		return
	}
	pid := decimal(process.Pid)
	s.mu.Lock()
	s.running[process.Pid] = process
	s.mu.Unlock()
	send(MessageStarted, pid)
	go func() { // ends with the started process, or with the starter
		state, err := process.Wait()
		s.mu.Lock()
		delete(s.running, process.Pid)
		s.mu.Unlock()
		if err == nil {
			send(MessageEnded, pid+" "+state.String())
		}
	}()
}

// startProgram starts a process with sockets, and closes them here. Parameter what is the number of
// listening sockets and their names. The other descriptors, at the end of fds, are connections to
// other processes. The error is a text, "" if there is none.
func (s *starter) startProgram(what string, fds []int) (*os.Process, string) {
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		files = append(files, f)
	}
	text, names := cut(what, ' ')
	listening := number(text)
	if listening < 0 || listening >= len(fds) {
		return nil, "cannot start a process: '" + text + "' listening sockets among " + decimal(len(fds)) +
			" descriptors"
	}
	var env []string
	for _, variable := range os.Environ() {
		switch name, _ := cut(variable, '='); name {
		case "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", UpgradeVariable:
		default:
			env = append(env, variable)
		}
	}
	links := ""
	for n := listening; n < len(fds); n++ {
		if links != "" {
			links += ","
		}
		links += decimal(3 + n) // after standard input, output and error
	}
	env = append(env, "LISTEN_FDS="+decimal(listening), "LISTEN_FDNAMES="+names, UpgradeVariable+"="+links)
	process, err := os.StartProcess(s.program, s.args, &os.ProcAttr{Env: env, Files: files})
	if err != nil {
		return nil, "cannot start the program: " + err.Error()
	}
	return process, ""
}

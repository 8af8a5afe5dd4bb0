package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/i18n"

	"github.com/prometheus/procfs"
)

// configOf returns the file that the command line of a process names first, nil if there is none.
func configOf(p procfs.Proc) os.FileInfo {
	args, _ := p.CmdLine() // a process may have just ended
	for _, arg := range args[min(1, len(args)):] {
		if _, value, ok := strings.Cut(arg, "="); ok && arg[0] == '-' {
			arg = value
		}
		if !filepath.IsAbs(arg) {
			arg = "/proc/" + strconv.Itoa(p.PID) + "/cwd/" + arg
		}
		if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
			return info
		}
	}
	return nil
}

// isOwn reports whether the command line of a process names the configuration.
func (d *doctor) isOwn(p procfs.Proc) bool {
	own, err := os.Stat(d.cfg.File)
	return err == nil && os.SameFile(own, configOf(p))
}

// running returns a gateway that runs with the configuration, also one whose sockets this account
// may not see.
func (d *doctor) running() (gateway procfs.Proc, ok bool) {
	all, _ := procfs.AllProcs()
	i := slices.IndexFunc(all, func(p procfs.Proc) bool {
		args, _ := p.CmdLine()
		serves := len(args) > 1 && (args[1] == "serve" || strings.HasPrefix(args[1], "-"))
		return serves && isGateway(p) && d.isOwn(p)
	})
	if i < 0 {
		return gateway, false
	}
	return all[i], true
}

// isGateway reports whether a process is of this program, by the name of its file.
func isGateway(p procfs.Proc) bool {
	args, _ := p.CmdLine()
	return len(args) > 0 && filepath.Base(args[0]) == filepath.Base(os.Args[0])
}

// openFiles examines the limit of the gateway that runs, or else that of this process.
func (d *doctor) openFiles(context.Context) {
	const area, subject = "limit", "open files"
	limit, whose := app.OpenFiles(), i18n.Plain("of this shell, a service has its own")
	if p, ok := d.running(); ok {
		if limits, err := p.Limits(); err == nil {
			limit, whose = limits.OpenFiles, i18n.Sprintf("of the running gateway, process %d", p.PID)
		}
	}
	few := app.FewOpenFiles(d.cfg, limit)
	for _, text := range few {
		d.addResult(area, subject, Warn,
			"raise the limit on open files (ulimit -n, LimitNOFILE=), or lower the setting", "%s (%s)", text, whose)
	}
	if len(few) > 0 {
		return
	}
	d.addResult(area, subject, OK, "", "enough for %d of max_connections = %d (%s)", app.MaxConnections(d.cfg, limit),
		d.cfg.Gateway.MaxConnections, whose)
}

// taken adds findings about the processes that listen on an address. A gateway with this
// configuration is no problem.
func (d *doctor) taken(address, setting string) {
	const area = "port"
	owners, stop := listeners(address), i18n.Sprintf("stop it, or change %s", setting)
	if i := slices.IndexFunc(owners, d.isOwn); i >= 0 {
		d.addResult(area, address, OK, "", "taken by the running gateway, process %d", owners[i].PID)
		return
	}
	if len(owners) == 0 {
		if p, ok := d.running(); ok {
			d.addResult(area, address, OK, "", "taken, and the gateway runs, process %d", p.PID)
			return
		}
		d.addResult(area, address, Fail,
			i18n.Sprintf("run this as root to see which, and stop it, or change %s", setting),
			"taken by a process of another account, which may be the gateway of this configuration")
	}
	for _, o := range owners {
		name, _ := o.Comm()
		switch {
		case !isGateway(o):
			d.addResult(area, address, Fail, stop, "taken by %s, process %d", name, o.PID)
		case configOf(o) == nil:
			d.addResult(area, address, Warn, stop, "taken by a gateway, process %d, whose command line names no "+
				"configuration: it may be another one", o.PID)
		default:
			d.addResult(area, address, Fail, stop, "taken by a gateway with another configuration, process %d", o.PID)
		}
	}
}

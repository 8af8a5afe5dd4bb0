package config

import (
	"errors"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fastdfs-gateway/internal/i18n"
)

// secrets reports secret files that other accounts can read.
func (k *checker) secrets() {
	keys, first := k.filesWithSecrets()
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		who := k.readers(name)
		if who.IsZero() {
			continue
		}
		slices.Sort(keys[name])
		k.warnf(first[name], "", "chmod 0640, with the group of the gateway's account as its group, or 0600 with "+
			"that account as its owner",
			"%q holds a secret (%s), and %s can read it", name, strings.Join(keys[name], ", "), who)
	}
}

// peerSecretFile is the key of the file with the secret of the fleet.
const peerSecretFile = "peer.secret_file"

// secretFiles reads the files with one secret each, and reports weak secrets.
func (k *checker) secretFiles() {
	const admin, redis, tokens = "gateway.admin_token_file", "redis.password_file", "antisteal.secret_files"
	c := k.c
	for key, files := range map[string][]string{admin: {c.Gateway.AdminTokenFile}, redis: {c.Redis.PasswordFile},
		tokens: c.AntiSteal.SecretFiles, peerSecretFile: {c.Peer.SecretFile}} {
		for _, name := range files {
			if name == "" || !c.usesPath(key) {
				continue
			}
			secret, err := ReadSecretFile(name)
			switch {
			case err != nil:
				k.keyError(key, "put the secret into it, readable for the user of the gateway only", "%v", err)
			case key == peerSecretFile:
				k.judgePeerSecret(c.at(key), key, secret)
			case key != redis && (len(secret) < shortSecret || slices.Contains(publishedSecrets, secret)):
				k.keyWarning(key, "set a long random secret",
					"the secret in %q is short or well known and can be found by trying", clip(name))
			}
		}
	}
}

// judgePeerSecret reports a secret of the fleet that can be guessed.
func (r *report) judgePeerSecret(at position, key, secret string) {
	switch {
	case slices.Contains(publishedSecrets, secret):
		r.errorf(at, key, "make one by `openssl rand -hex 32`, the same on every gateway",
			"secret is the one of an example, which everybody knows: any client with it reads every cached file")
	case len(secret) < shortSecret:
		r.errorf(at, key, "set a long random secret, the same on every gateway",
			"secret has fewer than %d characters and can be found by trying: any client with it reads every "+
				"cached file", shortSecret)
	case isWeak(secret):
		r.warnf(at, key, "make one by `openssl rand -hex 32`, the same on every gateway",
			"secret does not look random: a host that reaches the listener of [peer] or Redis can try secrets")
	}
}

// filesWithSecrets returns the files that hold secrets: the keys of each, and the position of its
// first key.
func (k *checker) filesWithSecrets() (keys map[string][]string, first map[string]position) {
	keys, first = map[string][]string{}, map[string]position{}
	for name, s := range k.c.settings() {
		line, written := k.c.written[name]
		files := []string{line.at.file}
		switch {
		case !written:
			continue
		case s.into.holdsSecret:
			files = s.into.paths()
		case !s.into.secret || line.value == "":
			continue
		case line.value == stockSecret && !k.c.AntiSteal.CheckToken: // published, and not used
			continue
		}
		for _, file := range files {
			keys[file] = append(keys[file], name)
			if known, ok := first[file]; !ok || line.at.line < known.line {
				first[file] = line.at
			}
		}
	}
	return keys, first
}

// readers returns a text about the accounts that can read a file, if these are all accounts, or the
// members of a group that is not private; empty = neither, or the file cannot be examined.
func (k *checker) readers(name string) i18n.Text {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return i18n.Text{}
	}
	info, err := os.Stat(name)
	if err != nil {
		return i18n.Text{}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return i18n.Text{}
	}
	mode := info.Mode().Perm()
	switch {
	case mode&0o004 != 0 && passable(name, func(uint32) bool { return false }):
		return i18n.Plain("every account of this host")
	case mode&0o040 != 0 && !k.isPrivate(st) && passable(name, func(gid uint32) bool { return gid == st.Gid }):
		return i18n.Sprintf("the group %s", groupName(st.Gid))
	}
	return i18n.Text{}
}

// passable reports whether all accounts, or a group accepted by has, can search every folder above
// the file.
func passable(name string, has func(gid uint32) bool) bool {
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		mode := info.Mode().Perm()
		st, ok := info.Sys().(*syscall.Stat_t)
		if mode&0o001 == 0 && !(ok && mode&0o010 != 0 && has(st.Gid)) {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// isPrivate reports whether the group of a file is the primary group of its owner, of the gateway's
// account, or of an account with the name of the group. It is true as well if the accounts of this
// host cannot be read: Landlock keeps a running gateway from a list that has been replaced.
func (k *checker) isPrivate(st *syscall.Stat_t) bool {
	gid := strconv.FormatUint(uint64(st.Gid), 10)
	isGroupOf := func(account *user.User, err error) bool {
		return err == nil && account.Gid == gid || err != nil && !isUnknown(err)
	}
	return isGroupOf(user.LookupId(strconv.FormatUint(uint64(st.Uid), 10))) ||
		isGroupOf(user.Lookup(groupName(st.Gid))) ||
		k.c.Gateway.User != "" && isGroupOf(user.Lookup(k.c.Gateway.User))
}

// isUnknown reports whether the error of a look-up means that the account does not exist.
func isUnknown(err error) bool {
	var name user.UnknownUserError
	var id user.UnknownUserIdError
	return errors.As(err, &name) || errors.As(err, &id)
}

// groupName returns the name of a group, or its number if it has no name.
func groupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if group, err := user.LookupGroupId(id); err == nil {
		return group.Name
	}
	return id
}

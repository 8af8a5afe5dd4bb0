package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

// Limits of groups and store paths. File ids name a store path by two hexadecimal digits.
const (
	maxGroups     = 1024
	maxStorePaths = 256
)

// Load reads a configuration with its includes and lists, and returns the problems of the text, in
// the order of files and lines; CheckFile returns those of the host too. The Config is nil if a
// problem is an Error.
func Load(file string) (*Config, []Problem) {
	c, r := loadText(file)
	if r.failed {
		c = nil
	}
	return c, r.problems
}

// loadText returns what can be read of a configuration, nil if one of its files was not read: a key
// that seems to be missing may be in that file.
func loadText(file string) (*Config, *report) {
	r := &report{}
	doc := readDocument(file, r)
	if r.unread {
		r.sorted(doc.files)
		return nil, r
	}
	l := newLoader(file, r, doc)
	for _, section := range l.keys.sections() {
		l.applySection(section, l.keys[section])
	}
	l.applyAddressMap()
	l.groups()
	l.applyHeaders()
	l.applyAccess()
	l.applyErrorPages()
	l.applyPresets()
	l.checkSections()
	l.lint()
	l.readLists()
	r.sorted(l.c.Files)
	return l.c, r
}

// loader fills one Config from one document.
type loader struct {
	*report
	doc       document
	bySection map[string][]entry
	keys      tables // bound to c
}

// misspelledMultiRange is the key of http.multi_range.enabled in http.conf of FastDFS 5.11 to 6.15.
const misspelledMultiRange = "http.multi_range.enabed"

func newLoader(file string, r *report, doc document) *loader {
	c := &Config{File: file, Files: doc.files, Types: map[string]string{}, AddressMap: map[string]string{},
		ErrorPages: map[int]string{}, written: map[string]entry{}}
	r.c = c
	l := &loader{report: r, doc: doc, bySection: map[string][]entry{}, keys: newTables(c)}
	for _, settings := range l.keys {
		setDefaults(settings, position{file: file})
	}
	l.doc.entries = nil
	for _, e := range doc.entries {
		if e.section == "" && e.key == misspelledMultiRange {
			e.key = "http.multi_range.enabled"
		}
		if !l.expand(&e) {
			continue // with an error
		}
		l.doc.entries = append(l.doc.entries, e)
		l.bySection[e.section] = append(l.bySection[e.section], e)
	}
	return l
}

func setDefaults(settings []setting, at position) {
	for _, s := range settings {
		if r := s.into.parse(s.def); r != nil {
			panic(fmt.Sprintf("BUG: config: the default of %s %s", s.key, r.what))
		}
		s.into.resolve(at)
	}
}

// full returns the name of a key in messages and positions.
func full(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}

// at returns the line of a key, or the file as a whole for a key that is not written.
func (c *Config) at(name string) position {
	if line, ok := c.written[name]; ok {
		return line.at
	}
	return position{file: c.File}
}

// Warning returns a warning about a key, at the line where it was written.
func (c *Config) Warning(key string, text i18n.Text, fix string) Problem {
	at := c.at(key)
	return Problem{File: at.file, Line: at.line, Severity: Warning, Key: key, Text: text,
		Fix: i18n.Plain(fix)}
}

// applySection reads the entries of one section into the fields of settings.
func (l *loader) applySection(section string, settings []setting) {
	for _, e := range l.lastEntries(section) {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.key == e.key })
		if i < 0 {
			l.unknownKey(e, settings)
			continue
		}
		l.keep(e)
		l.apply(settings[i], e)
	}
}

// lastEntries returns the last entry of each key of a section, and all of tracker_server. It warns
// of the others, with two exceptions: the file of -c overrides the files that it includes, and a
// file that is included twice gets a warning as a whole.
func (l *loader) lastEntries(section string) (list []entry) {
	entries, last := l.bySection[section], map[string]int{}
	for i, e := range entries {
		if first, twice := last[e.key]; twice && e.key != trackerServer {
			was := entries[first].at
			if was != e.at && (was.file == e.at.file || e.at.file != l.c.File || weakens(e, entries[first])) {
				l.warnf(e.at, full(section, e.key), "keep one of the two",
					"%s is written already in %s line %d; the last value counts", e.key, was.file, was.line)
			}
		}
		last[e.key] = i
	}
	for i, e := range entries {
		if last[e.key] == i || e.key == trackerServer {
			list = append(list, e)
		}
	}
	return list
}

// weakens reports whether a line of the file of -c takes back the check of tokens, or the secret,
// of an included file.
func weakens(e, before entry) bool {
	switch {
	case e.section != "":
		return false
	case e.key == checkTokenKey:
		return isTrue(before.value) && !isTrue(e.value)
	}
	return e.key == secretKey && before.value != "" && before.value != stockSecret && before.value != e.value
}

// keep stores the line of a key in use. That of tracker_server has the values of all its lines.
func (l *loader) keep(e entry) {
	name := full(e.section, e.key)
	if before, more := l.c.written[name]; more && name == trackerServer {
		e.value = before.value + ", " + e.value
	}
	l.c.written[name] = e
}

func (l *loader) apply(s setting, e entry) {
	r := s.into.parse(e.value)
	s.into.resolve(e.at)
	if r == nil && (s.into.secret || s.into.paths != nil) {
		r = punctuated(e.value)
	}
	if r == nil {
		return
	}
	value := i18n.Plain(shown(e.value))
	if s.into.secret {
		value = i18n.Plain("(not shown)")
	}
	l.addValue(e, value, r)
}

// addValue adds the problem of a value, which is shown as value.
func (l *loader) addValue(e entry, value i18n.Text, r *parseError) {
	l.addProblem(r.severity, e.at, full(e.section, e.key), i18n.Sprintf("%s = %s %s", e.key, value, r.what), r.fix)
}

// unknownKey reports a key that its section does not have. The module ignores such keys, so they
// are a warning in its sections; but one that was meant to protect the files is an error.
func (l *loader) unknownKey(e entry, settings []setting) {
	module := !isOwn(e.section)
	if _, ok := storePathIndex(e.key); ok && module {
		return // read by groups
	}
	if e.section == imageSection && strings.HasPrefix(e.key, presetKey) {
		return // read by applyPresets
	}
	severity, text := Error, i18n.Sprintf("[%s] has no key %q", e.section, clip(e.key))
	if module {
		severity, text = Warning, i18n.Sprintf("%q is no known key and is ignored", clip(e.key))
	}
	names := namesOf(settings)
	switch {
	case module && l.losesTokens(e):
		severity, text = Error, i18n.Sprintf("%q is no known key here, so no token is checked", clip(e.key))
	case isRule(e):
		severity = Error
	}
	fix := i18n.Plain("correct the name, or remove the line")
	if near, ok := Nearest(e.key, names); ok {
		fix = i18n.Sprintf("did you mean %s (%s)?", near, i18n.Plain(settings[slices.Index(names, near)].doc))
	} else if home, ok := l.homeOf(e.key); ok {
		fix = home
	}
	l.addProblem(severity, e.at, full(e.section, e.key), text, fix)
}

// losesTokens reports whether a line that does not count was meant to switch the check of tokens
// on, also with a misspelt value, and no other line does that.
func (l *loader) losesTokens(e entry) bool {
	return isForTokens(e.key, l.keys[""]) && !isFalse(e.value) &&
		!slices.ContainsFunc(l.bySection[""], func(e entry) bool { return e.key == checkTokenKey })
}

// isForTokens reports whether a word, perhaps a misspelt one, stands for the key that switches the
// check of tokens on, and not for another one of the module's part.
func isForTokens(word string, module []setting) bool {
	near, _ := Nearest(word, namesOf(module))
	word = strings.ToLower(fold(word))
	return near == checkTokenKey || near == "" && (strings.Contains(word, "check_token") ||
		strings.Contains(word, "anti_steal"))
}

// isRule reports whether a line has the name of a rule of [access], and a value that keeps clients
// out.
func isRule(e entry) bool {
	switch e.key {
	case "allow", "referers":
		return e.value != "" && e.value != "*" && e.value != "all"
	case "deny":
		return e.value != "" && e.value != "none"
	}
	return false
}

// lostRules reports the lines of a section that does not count and were meant to protect files.
func (l *loader) lostRules(section string) {
	for _, e := range l.bySection[section] {
		if l.losesTokens(e) || isRule(e) {
			l.unknownKey(e, nil)
		}
	}
}

// namesOf returns the names of keys.
func namesOf(settings []setting) []string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.key
	}
	return names
}

// homeOf returns the name of a key with its section, as text for a message, if another section has
// the key.
func (l *loader) homeOf(key string) (i18n.Text, bool) {
	if _, ok := storePathIndex(key); ok {
		return i18n.Sprintf("%s belongs in the global section, above every [section], or in a [groupN]", key), true
	}
	for _, section := range l.keys.sections() {
		for _, s := range l.keys[section] {
			switch {
			case section == "" && (s.key == key || strings.HasSuffix(s.key, "."+key)):
				return i18n.Sprintf("%s belongs in the global section, above every [section]", s.key), true
			case s.key == key:
				return i18n.Sprintf("%s belongs in [%s]", key, section), true
			}
		}
	}
	return i18n.Text{}, false
}

// clip shortens a name from the file for a message.
func clip(name string) string {
	if len(name) > 80 {
		return name[:77] + "..."
	}
	return name
}

// applyAddressMap reads the lines `<address in id> = <address to use>`. Addresses are stored in the
// form of the lists of storages, so that each spelling of an IPv6 address is found.
func (l *loader) applyAddressMap() {
	for _, e := range l.lastEntries(addressMap) {
		l.keep(e)
		from, _, fromOK := fdfs.ParseHosts(e.key)
		to, port, toOK := fdfs.ParseHosts(e.value)
		if home, isKey := l.homeOf(e.key); isKey {
			l.errorf(e.at, full(addressMap, e.key), home, "%q is the name of a key, not an address", clip(e.key))
			continue
		}
		addr, err := netip.ParseAddr(e.key)
		if err != nil || !fromOK || !toOK || len(from) != 1 || len(to) != 1 || from[0] != e.key {
			l.errorf(e.at, full(addressMap, e.key),
				"write <address in the file id> = <address to use>, such as 10.0.0.1 = 192.168.0.1",
				"%s = %s maps no address to an address", shown(e.key), shown(e.value))
			continue
		}
		target := to[0]
		if port != 0 {
			target = net.JoinHostPort(target, strconv.Itoa(port))
		}
		l.c.AddressMap[addr.Unmap().String()] = target
	}
}

// groups reads the groups of the sections [group1], [group2] ..., or, without group_count, the one
// of the global section.
func (l *loader) groups() {
	c := l.c
	if c.groupCount == 0 {
		g := l.group("", Group{Name: c.GroupName, StoragePort: c.StoragePort}, c.pathCount, c.BasePath)
		if len(g.StorePaths) > 0 {
			c.Groups = []Group{g}
		}
	}
	for i := range c.groupCount {
		section := c.sectionOf(i)
		at, ok := l.doc.sections[section]
		if !ok {
			l.errorf(c.at("group_count"), "group_count",
				i18n.Sprintf("add [%s] with group_name, store_path_count and store_path0, or lower group_count",
					section),
				"group_count = %d, but there is no section [%s]", c.groupCount, section)
			if i >= len(l.doc.sections) {
				return // the rest is missing as well
			}
			continue
		}
		var g Group
		var pathCount int
		settings := groupKeys(&g.Name, &g.StoragePort, &pathCount)
		setDefaults(settings, at)
		l.applySection(section, settings)
		if g.Name == "" {
			l.errorf(at, full(section, "group_name"), i18n.Sprintf("add group_name = %s", section),
				"[%s] has no group_name", section)
		}
		c.Groups = append(c.Groups, l.group(section, g, pathCount, ""))
	}
}

// group returns a group with its store paths.
func (l *loader) group(section string, g Group, pathCount int, fallback string) Group {
	if g.Name != "" && !fdfs.ValidGroup(g.Name) {
		l.keyError(full(section, "group_name"), "write 1 to 16 letters and digits, such as group1",
			"group_name = %s is no name of a group", shown(g.Name))
	}
	g.StorePaths = l.storePaths(section, pathCount, fallback)
	return g
}

// storePaths reads store_path0, store_path1 ...; fallback is the default of store_path0.
func (l *loader) storePaths(section string, count int, fallback string) []string {
	paths := make([]string, count)
	if count > 0 {
		paths[0] = fallback
	}
	where := i18n.Plain("the global section")
	if section != "" {
		where = i18n.Sprintf("[%s]", section)
	}
	for _, e := range l.bySection[section] {
		i, ok := storePathIndex(e.key)
		if !ok {
			continue
		}
		name := full(section, e.key)
		l.keep(e)
		if i >= count {
			l.warnf(e.at, name, i18n.Sprintf("set store_path_count = %d, or remove the line", i+1),
				"%s is ignored: store_path_count is %d in %s", e.key, count, where)
			continue
		}
		if r := punctuated(e.value); r != nil {
			l.addValue(e, i18n.Plain(shown(e.value)), r)
		}
		if e.value != "" {
			paths[i] = e.value
		}
	}
	at := l.c.at(full(section, "store_path_count"))
	if opened, ok := l.doc.sections[section]; ok && at.line == 0 {
		at = opened
	}
	for i, p := range paths {
		if p != "" {
			continue
		}
		key := "store_path" + strconv.Itoa(i)
		fix := i18n.Sprintf("add %s = FOLDER, or set store_path_count = %d", key, i)
		l.errorf(at, full(section, key), fix, "store_path_count is %d in %s, but there is no %s", count, where, key)
	}
	return paths
}

// storePathIndex returns the number in store_path0, store_path1 ...
func storePathIndex(key string) (int, bool) { return numbered(key, "store_path") }

// isGroupSection reports whether a section is group1, group2 ...
func isGroupSection(name string) bool {
	n, ok := numbered(name, "group")
	return ok && n > 0
}

// numbered returns the plain number behind a prefix.
func numbered(name, prefix string) (int, bool) {
	digits, found := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(digits)
	return n, found && err == nil && strconv.Itoa(n) == digits && n >= 0
}

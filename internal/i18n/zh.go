package i18n

import (
	"maps"
	"sync"
)

// entry is a format in English with its translation.
type entry struct{ english, translation string }

// chinese is the Chinese catalog. Its terms are those of docs/zh/glossary.md.
var chinese = sync.OnceValue(func() map[string]string {
	catalog := map[string]string{}
	for _, part := range [][]entry{zhConfig, zhKeys, zhDoctor, zhStatus, zhSystem} {
		for _, e := range part {
			if _, twice := catalog[e.english]; twice {
				panic("BUG: i18n: two translations of " + e.english)
			}
			catalog[e.english] = e.translation
		}
	}
	return catalog
})

// Catalog returns the translations of a language by their formats in English, for tests.
func (l Language) Catalog() map[string]string {
	if l == Chinese {
		return maps.Clone(chinese())
	}
	return nil
}

// zhSystem has common errors of the kernel and of Go's standard library.
var zhSystem = []entry{
	{"permission denied", "没有权限"},
	{"no such file or directory", "文件或目录不存在"},
	{"file does not exist", "文件不存在"},
	{"is a directory", "是一个目录"},
	{"not a directory", "不是目录"},
	{"i/o timeout", "读写超时"},
	{"connection refused", "连接被拒绝"},
	{"context deadline exceeded", "超时"},
	{"too many open files", "打开的文件过多"},
	{"no space left on device", "磁盘空间不足"},
	{"read-only file system", "文件系统只读"},
	{"unexpected EOF", "数据提前结束"},
	{"EOF", "连接被对方关闭"},
}

package i18n

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
)

// Language is a natural language, by its code of ISO 639-1.
type Language string

// The languages. The source and output for programs are in English.
const (
	English Language = "en"
	Chinese Language = "zh" // simplified characters
)

// Translate returns the translation of a sentence without arguments, or the sentence itself if the
// language has none.
func (l Language) Translate(sentence string) string {
	if l == Chinese {
		if translation, ok := chinese()[sentence]; ok {
			return translation
		}
	}
	return sentence
}

// Tag returns the language tag (RFC 5646) of the texts, such as zh-CN.
func (l Language) Tag() string {
	if l == Chinese {
		return "zh-CN"
	}
	return string(l)
}

// ParseLanguage parses a language tag (RFC 5646) such as zh or zh-CN, also with underscores; ok is
// false for a language without texts here.
func ParseLanguage(tag string) (l Language, ok bool) {
	primary, _, _ := strings.Cut(strings.ReplaceAll(tag, "_", "-"), "-")
	l = Language(strings.ToLower(primary))
	return l, l == English || l == Chinese
}

// FromEnvironment returns the language of messages: that of the first of LC_ALL, LC_MESSAGES and
// LANG that is not empty (POSIX.1-2017 section 8.2). A locale of another language means English.
func FromEnvironment(getenv func(name string) string) Language {
	locale := cmp.Or(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG"))
	name, _, _ := strings.Cut(locale, ".") // without the charset
	if l, ok := ParseLanguage(name); ok {
		return l
	}
	return English
}

// FromAcceptLanguage returns the language that an Accept-Language field prefers (RFC 9110 section
// 12.5.4); English if the field names no language of this package.
func FromAcceptLanguage(field string) Language {
	best, weight := English, 0.
	for member := range strings.SplitSeq(field, ",") {
		tag, parameter, _ := strings.Cut(member, ";")
		l, ok := ParseLanguage(strings.TrimSpace(tag))
		q := 1.
		if value, given := strings.CutPrefix(strings.TrimSpace(parameter), "q="); given {
			var err error
			if q, err = strconv.ParseFloat(value, 64); err != nil {
				q = 0
			}
		}
		if ok && q > weight && q <= 1 {
			best, weight = l, q
		}
	}
	return best
}

// zhCatalog is a JSON object: the formats in English with their Chinese translations, in the terms
// of docs/zh/glossary.md.
//
//go:embed zh.json
var zhCatalog []byte

// chinese is the Chinese catalog.
var chinese = sync.OnceValue(func() (catalog map[string]string) {
	if err := json.Unmarshal(zhCatalog, &catalog); err != nil {
		panic("BUG: i18n: zh.json: " + err.Error())
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

package fileselect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	type file struct {
		group string
		path  int
		ext   string
	}
	for _, tt := range []struct {
		selector string
		yes, no  []file
	}{
		{"", []file{{"group1", 0, "jpg"}, {"g", 255, ""}}, nil},
		{"jpg .PNG", []file{{"group1", 0, "jpg"}, {"g", 3, "JPG"}, {"g", 3, "png"}},
			[]file{{"group1", 0, "gif"}, {"group1", 0, ""}, {"group1", 0, "jpeg"}}},
		{"jpg,png , gif", []file{{"g", 0, "png"}, {"g", 0, "gif"}}, []file{{"g", 0, "bmp"}}},
		{"group2/", []file{{"group2", 0, ""}, {"group2", 9, "jpg"}}, []file{{"group1", 0, "jpg"}, {"group22", 0, ""},
			{"GROUP2", 0, ""}}},
		{"/group3/M0A/", []file{{"group3", 10, "jpg"}}, []file{{"group3", 0, "jpg"}, {"group2", 10, "jpg"}}},
		{"M01/", []file{{"a", 1, ""}, {"b", 1, ""}}, []file{{"a", 0, ""}}},
		{"group2/ group3/M00/ jpg png", []file{{"group2", 7, "jpg"}, {"group3", 0, "png"}},
			[]file{{"group3", 1, "jpg"}, {"group2", 7, "gif"}, {"group1", 0, "jpg"}}},
	} {
		s, err := Parse(tt.selector)
		require.NoError(t, err, tt.selector)
		require.Equal(t, tt.selector == "", s.IsEmpty())
		for _, f := range tt.yes {
			require.True(t, s.Match(f.group, f.path, f.ext), "%q: %v", tt.selector, f)
		}
		for _, f := range tt.no {
			require.False(t, s.Match(f.group, f.path, f.ext), "%q: %v", tt.selector, f)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{"/", "//", "group1/M0/", "group1/m00/", "group1/M000/", "group1/M00/00/", "gr*p/",
		"*.jpg", "j?g", "group1/x/", "aaaaaaaaaaaaaaaaa/", "\x00", "ä", "a/b", "."} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

package command

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// inspection is a decoded file id, in the form of -json.
type inspection struct {
	FileID    string      `json:"file_id"`
	Error     string      `json:"error,omitempty"`
	Group     string      `json:"group,omitempty"`
	Logic     string      `json:"logic_filename,omitempty"`
	Kind      string      `json:"kind,omitempty"`
	PathIndex *int        `json:"store_path_index,omitempty"`
	SourceIP  string      `json:"source_ip,omitempty"`
	SourceID  uint32      `json:"source_id,omitempty"`
	Source    string      `json:"source_address,omitempty"` // of SourceID, host:port; absent: in no list
	Created   string      `json:"created,omitempty"`
	Timestamp *int64      `json:"create_time,omitempty"`
	Size      *int64      `json:"size,omitempty"` // absent: not in the id
	CRC32     string      `json:"crc32,omitempty"`
	Trunk     *trunkPlace `json:"trunk,omitempty"`
	Disk      string      `json:"path_on_disk,omitempty"`

	// Variant is the variant of CRC32 with which the file of -file matches: standard, legacy or
	// none; empty without such a file.
	Variant string `json:"crc32_variant,omitempty"`
}

type trunkPlace struct {
	File   uint32 `json:"file"`
	Offset uint32 `json:"offset"`
	Alloc  uint32 `json:"alloc_size"`
}

// inspectCommand prints every field of each id. Invalid ids are reported in their place, and are a
// failure at the end.
func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "inspect [-json] [-c FILE] [-file PATH] FILE_ID...",
		Short:       "decode file ids; -file compares the content of a file with the CRC32 of one id",
		Example:     "gateway inspect " + exampleID,
		Args:        arguments(1, -1),
		Annotations: exit1("an id cannot be decoded, or the CRC32 differs"),
	}
	asJSON := jsonFlag(cmd)
	content := cmd.Flags().String("file", "", "a `PATH` to compare with the CRC32 of the id, in both variants")
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *content != "" && len(args) > 1 {
			return usageError{i18n.Errorf("inspect: -file takes one id")}
		}
		var cfg *config.Config
		if *path != "" {
			var err error
			if cfg, err = loadConfig(cmd, *path); err != nil {
				return err
			}
		}
		failed := false
		lists := sync.OnceValue(func() *app.Upstreams { return openLists(cfg) }) // ends with the process
		for i, arg := range args {
			if i > 0 && !*asJSON {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			found := inspect(cfg, arg)
			if found.SourceID != 0 && cfg != nil && lists() != nil {
				if server, ok := lists().Sources.ByID(found.SourceID); ok {
					found.Source = server.Addr()
				}
			}
			if *content != "" && found.Error == "" {
				if err := found.compare(*content); err != nil {
					return err
				}
			}
			failed = failed || found.Error != "" || found.Variant == variantNone
			if err := found.print(cmd, *asJSON); err != nil {
				return err
			}
		}
		if failed {
			return errPrinted
		}
		return nil
	}
	return cmd
}

// openLists loads the storage ids of a configuration, and of its trackers; nil = they cannot be
// loaded.
func openLists(cfg *config.Config) *app.Upstreams {
	upstreams, err := app.OpenUpstreams(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil
	}
	upstreams.Await()
	return upstreams
}

// inspect decodes one id. With a configuration, the result has the path on this host.
func inspect(cfg *config.Config, arg string) inspection {
	id, err := fdfs.Parse(strings.TrimPrefix(arg, "/"))
	if err != nil {
		return inspection{FileID: arg, Error: err.Error()}
	}
	out := inspection{
		FileID: arg, Group: id.Group, Logic: id.Logic, Kind: id.Kind.String(), PathIndex: &id.PathIndex,
		Timestamp: &id.Created,
		Created:   time.Unix(id.Created, 0).UTC().Format(time.RFC3339), CRC32: fmt.Sprintf("%08x", id.CRC32),
		Disk: diskPath(cfg, id),
	}
	if addr, ok := id.Source.Addr(); ok {
		out.SourceIP = addr.String()
	}
	out.SourceID, _ = id.Source.ID()
	if id.Size >= 0 {
		out.Size = &id.Size
	}
	if id.Kind == fdfs.KindTrunk {
		out.Trunk = &trunkPlace{id.Trunk.ID, id.Trunk.Offset, id.Trunk.Alloc}
	}
	return out
}

// The values of crc32_variant.
const (
	variantStandard = "standard"
	variantLegacy   = "legacy"
	variantNone     = "none"
)

// variantTexts describe the values of crc32_variant.
var variantTexts = map[string]string{
	variantStandard: "the file has it in the standard variant",
	variantLegacy:   "the file has it in the variant of FastDFS 5.x",
	variantNone:     "the file has another one in both variants: it is a link's target, or corrupted",
}

// compare sets the variant with which the content of a file has the CRC32 of the id.
func (x *inspection) compare(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return i18n.Errorf("cannot compare: %w", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	if x.Size == nil || x.Kind == fdfs.KindSlave.String() || x.Kind == fdfs.KindAppender.String() {
		return i18n.Errorf("cannot compare: the CRC32 in the id of a file of kind %s is not that of its content",
			x.Kind)
	}
	var sum checksum.Sum
	if _, err := io.Copy(&sum, file); err != nil {
		return i18n.Errorf("cannot compare: %w", err)
	}
	switch x.CRC32 {
	case fmt.Sprintf("%08x", sum.Standard()):
		x.Variant = variantStandard
	case fmt.Sprintf("%08x", sum.Legacy()):
		x.Variant = variantLegacy
	default:
		x.Variant = variantNone
	}
	return nil
}

// diskPath returns the path of the file, or of its trunk file.
func diskPath(cfg *config.Config, id fdfs.FileID) string {
	root := fmt.Sprintf("<store_path%d of %s>", id.PathIndex, id.Group)
	if cfg != nil {
		for _, g := range cfg.Groups {
			if g.Name == id.Group && id.PathIndex < len(g.StorePaths) {
				root = g.StorePaths[id.PathIndex]
			}
		}
	}
	return root + "/data/" + id.DiskName()
}

func (x inspection) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, x)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("file id", "%q", x.FileID)
	if x.Error != "" {
		row("error", "%s", x.Error)
		return w.Flush()
	}
	row("group", "%s", x.Group)
	row("logic filename", "%s", x.Logic)
	row("kind", "%s", x.Kind)
	row("store path", "%d (M%02X)", *x.PathIndex, *x.PathIndex)
	if x.SourceIP != "" {
		row("source", "%s", x.SourceIP)
	} else if x.Source != "" {
		row("source", "storage id %d (%s)", x.SourceID, x.Source)
	} else {
		row("source", "storage id %d", x.SourceID)
	}
	row("created", "%s (%d)", x.Created, *x.Timestamp)
	if x.Size != nil {
		row("size", "%d", *x.Size)
	} else {
		row("size", "not in the id of a file of this kind")
	}
	row("crc32", "%s", x.CRC32)
	if x.Variant != "" {
		row("crc32 variant", "%s: %s", x.Variant, variantTexts[x.Variant])
	}
	if x.Trunk != nil {
		row("trunk slot", "file %d, offset %d, %d bytes allocated", x.Trunk.File, x.Trunk.Offset, x.Trunk.Alloc)
	}
	row("on disk", "%s", x.Disk)
	return w.Flush()
}

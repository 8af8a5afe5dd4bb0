package cachelock

import "strings"

// Operation is something that a user does to folders and files. Which operations may run beside each other on overlapping paths
// is the table below; docs/locks.md shows it.
type Operation uint8

// The operations. A folder that is worked in, or taken from, is the source of Folders.Begin; the folder that a move or a copy adds
// to, and the path that a renaming leads to, is its target.
const (
	OpCreate     Operation = iota // something new in the source folder
	OpUpload                      // a file into the source folder
	OpMoveDir                     // the source folder into the target folder
	OpMoveFile                    // the source file into the target folder
	OpCopyDir                     // the source folder into the target folder
	OpCopyFile                    // the source file into the target folder
	OpRenameDir                   // the source folder becomes the target path
	OpRenameFile                  // the source file becomes the target path
	OpDeleteDir                   // the source folder, to the trash
	OpDeleteFile                  // the source file, to the trash
	OpPurgeTrash                  // the source, a folder or a file of the trash, for good
)

var operationNames = [...]string{"create", "upload", "move dir", "move file", "copy dir", "copy file", "rename dir", "rename file",
	"delete dir", "delete file", "purge trash"}

// operations is how many there are.
const operations = Operation(len(operationNames))

// String returns the name as it stands in the table.
func (op Operation) String() string {
	if op >= operations {
		return "unknown operation"
	}
	return operationNames[op]
}

// hasTarget tells whether the operation works in two places.
func (op Operation) hasTarget() bool { return op >= OpMoveDir && op <= OpRenameFile }

// role is which of the paths of an operation a claim is for.
type role uint8

const (
	roleSource role = iota // A, or a
	roleTarget             // B
)

// verdict says whether one operation may start beside another.
type verdict byte

const (
	verdictYes   verdict = 'y'
	verdictNo    verdict = 'n'
	verdictApart verdict = '-' // they never meet
)

// cell is what the table says about a running and a wanted operation whose paths overlap: by the path of the running one, and
// then by the path of the wanted one, source first.
type cell [2][2]verdict

// operationTable has a row for each running operation and a column for each that is wanted.
var operationTable = makeOperationTable()

// makeOperationTable writes the table down. The rows of create, upload, move dir, delete dir, delete file and purge trash come
// from the services whose lock this is. The others follow from them:
//
//   - a file that is moved or renamed leaves its place as one that is deleted does, and nothing starts there meanwhile;
//   - a folder that is renamed takes everything inside it along, and so does nothing else;
//   - what is copied is read: other reading goes on, what would change it does not start, and in a folder that is being copied
//     nothing is added;
//   - an addition to a folder is treated as an upload is, and additions go together: that of a copied folder too, but a folder
//     that is being added to is not copied.
func makeOperationTable() [operations][operations]cell {
	const yes, no = verdictYes, verdictNo
	var (
		y  = cell{{yes, yes}, {yes, yes}}
		n  = cell{{no, no}, {no, no}}
		x  = cell{{verdictApart, verdictApart}, {verdictApart, verdictApart}}
		ab = cell{{no, no}, {yes, yes}} // A n, B y: not where the running one takes from, but where it adds to

		fileDir  = cell{{no, no}, {no, yes}}   // a file is moved, a folder shall be copied
		dirDir   = cell{{yes, no}, {no, yes}}  // a folder is copied, another shall be
		dirFile  = cell{{yes, no}, {yes, yes}} // a folder is copied, a file shall be
		copyMove = cell{{no, yes}, {yes, yes}} // a file is copied, one shall be moved
		copyDir  = cell{{yes, yes}, {no, yes}} // a file is copied, a folder shall be
	)
	return [operations][operations]cell{
		//             create, upload, move dir, file, copy dir, file, rename dir, file, delete dir, file, purge trash
		OpCreate:     {y, y, n, y, n, y, n, y, n, y, x},
		OpUpload:     {y, y, n, y, n, y, n, y, n, y, x},
		OpMoveDir:    {n, n, n, n, y, y, n, ab, n, ab, x},
		OpMoveFile:   {ab, ab, n, ab, fileDir, ab, n, ab, n, ab, x},
		OpCopyDir:    {ab, ab, n, ab, dirDir, dirFile, n, ab, n, ab, x},
		OpCopyFile:   {y, y, n, copyMove, copyDir, y, n, ab, n, ab, x},
		OpRenameDir:  {n, n, n, n, n, n, n, n, n, n, x},
		OpRenameFile: {n, n, n, n, n, n, n, n, n, n, x},
		OpDeleteDir:  {n, n, n, n, n, n, n, n, n, n, x},
		OpDeleteFile: {n, n, n, n, n, n, n, n, n, n, x},
		OpPurgeTrash: {x, x, x, x, x, x, x, x, x, x, n},
	}
}

// kind is what a claim on a path is for: a mode, or an operation and which of its paths.
type kind uint8

const (
	kindShared kind = iota
	kindExclusive
	firstOpKind
	kinds = firstOpKind + 2*kind(operations)
)

func kindOf(op Operation, r role) kind { return firstOpKind + 2*kind(op) + kind(r) }

// operation is the operation and the role of a kind that is no mode.
func (k kind) operation() (Operation, role) {
	return Operation((k - firstOpKind) / 2), role((k - firstOpKind) % 2)
}

// exists is false for the target of an operation that has none.
func (k kind) exists() bool {
	if k < firstOpKind {
		return true
	}
	op, r := k.operation()
	return r == roleSource || op.hasTarget()
}

// mayStart tells whether a claim may be taken beside one that is held, on overlapping paths. Modes and operations exclude each
// other.
func mayStart(running, wanted kind) bool {
	if running < firstOpKind || wanted < firstOpKind {
		return running == kindShared && wanted == kindShared
	}
	runningOp, runningRole := running.operation()
	wantedOp, wantedRole := wanted.operation()
	return operationTable[runningOp][wantedOp][runningRole][wantedRole] != verdictNo
}

// Kinds beside which the same others may start are one class, so that there is little to look through. A class has the letter of
// its first kind.
var (
	classOf [kinds]byte   // of each kind
	classes string        // all letters
	stops   [kinds]string // the classes beside which a kind must not start
)

func init() {
	seen := map[string]byte{}
	for running := range kinds {
		if !running.exists() {
			continue
		}
		var row strings.Builder
		for wanted := range kinds {
			if wanted.exists() && mayStart(running, wanted) {
				row.WriteByte(letter(wanted))
			}
		}
		if seen[row.String()] == 0 {
			seen[row.String()] = letter(running)
			classes += string(letter(running))
			for wanted := range kinds {
				if wanted.exists() && !mayStart(running, wanted) {
					stops[wanted] += string(letter(running))
				}
			}
		}
		classOf[running] = seen[row.String()]
	}
}

func letter(k kind) byte { return 'a' + byte(k) }

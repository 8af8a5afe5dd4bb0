package main

// command is one row of the table of commands. Help, suggestions for misspelt names and the
// documents come from it. The flags are those that run adds before it parses them: see flagsOf.
type command struct {
	name    string
	usage   string // flags and arguments
	about   string // one sentence without a full stop
	fails   string // the meaning of exit code 1; empty: any error
	example string // a command line
	run     func(c *call) error
}

// commands is the table, in the order of the help.
func commands() []command {
	return []command{
		{"serve", "-c FILE",
			"run the server; the command may be left out", "",
			"gateway -c /etc/fdfs/mod_fastdfs.conf", runServe},
		{"check", "-c FILE [-json]",
			"read a configuration and print each problem with file:line", "the configuration has errors",
			"gateway check -c /etc/fdfs/mod_fastdfs.conf", runCheck},
		{"doctor", "-c FILE [-json]",
			"check, and examine trackers, storages, Redis, peers, clocks, limits, disks and ports",
			"an examination fails",
			"gateway doctor -c /etc/fdfs/mod_fastdfs.conf", runDoctor},
		{"inspect", "[-json] [-c FILE] [-file PATH] FILE_ID...",
			"decode file ids; -file compares the content of a file with the CRC32 of one id",
			"an id cannot be decoded, or the CRC32 differs",
			"gateway inspect " + exampleID, runInspect},
		{"token", "-c FILE [-ts N|-ttl D] [-json] FILE_ID",
			"print the anti-steal query of a file, and its URL", "",
			"gateway token -c /etc/fdfs/mod_fastdfs.conf -ttl 24h " + exampleID, runToken},
		{"explain", "-c FILE|-admin ADDR [-admin-token-file FILE] [-fresh] [-json] URL_OR_ID",
			"show how a request is served, and why: by the running gateway, else by its own examination", "",
			"gateway explain -c /etc/fdfs/mod_fastdfs.conf http://localhost:8888/" + exampleID, runExplain},
		{"purge", "[-admin ADDR|-c FILE] [-admin-token-file FILE] [-json] -id ID|-prefix FOLDER|-all",
			"remove files from the caches of a running gateway and its fleet", "a gateway has not applied the purge",
			"gateway purge -prefix group1/M00/0A/", runPurge},
		{"prefetch", "[-admin ADDR|-c FILE] [-admin-token-file FILE] [-json] FILE_ID...|-",
			"make a running gateway fetch files; - reads the ids from standard input, one per line",
			"a file was not fetched",
			"gateway prefetch - < ids.txt", runPrefetch},
		{"compare", "[-sample N] [-rate N] [-ranges] [-timeout D] [-json] OLD_URL NEW_URL [FILE]",
			"send the same requests to two servers, from file ids or an access log, and print the differences",
			"responses differ, or a server does not answer",
			"gateway compare -ranges http://localhost:8888 http://localhost:8080 access.log", runCompare},
		{"ready", "[-admin ADDR|-c FILE] [-admin-token-file FILE] [-json]",
			"test whether a running gateway can serve, for health checks", "it cannot, or it is not reachable",
			"gateway ready -c /etc/fdfs/mod_fastdfs.conf", runReady},
		{"demo", "[-dir DIR] [-listen ADDR] [-token-listen ADDR] [-admin-listen ADDR]",
			"write a small store and serve it, without and with tokens", "",
			"gateway demo -dir /tmp/demo-store", runDemo},
		{"version", "[-json]",
			"print the version", "",
			"gateway version", runVersion},
		{"help", "[-json] [COMMAND]",
			"print this list, or the flags of a command; -json prints all of it for programs", "",
			"gateway help check", runHelp},
	}
}

// exampleID is the file id of the examples.
const exampleID = "group1/M00/00/01/fwAAAWsCs5WAAB7vAACw72Tj3gY919.jpg"

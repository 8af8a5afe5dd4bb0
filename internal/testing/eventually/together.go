package eventually

import "flag"

// Together lets eight parallel tests run at a time, unless the command line has another number. It
// is for packages whose parallel tests mostly wait, and is called by TestMain.
func Together() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic("BUG: " + err.Error())
	}
}

package backend

import (
	"os"
	"regexp"
	"strings"
)

// processorLines are the lines of /proc/cpuinfo that say what a processor can do.
var processorLines = regexp.MustCompile(`(?m)^(vendor_id|model|model name|stepping|flags|Features|CPU .*)\s*:.*\n`)

// processor says what the first processor can do; "" where the system does not say it as Linux does.
func processor() string {
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	first, _, _ := strings.Cut(string(cpuinfo), "\n\n")
	return strings.Join(processorLines.FindAllString(first, -1), "")
}

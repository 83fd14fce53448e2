// Package configs carries the released configurations inside the program: mappo.yaml and sft.yaml are what the commands
// run without --config, the others are examples to copy.
package configs

import "embed"

// Files holds every .yaml of this folder.
//
//go:embed *.yaml
var Files embed.FS

// Read gives a file, with its name for messages.
func Read(name string) (string, []byte) {
	text, err := Files.ReadFile(name)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return "configs/" + name, text
}

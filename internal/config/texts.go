package config

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
)

// Decode reads YAML that is no command's config into a value, in which strict wants every key of the text. name is what
// errors call the file.
func Decode(name string, text []byte, value any, strict bool) (err error) {
	if err := CheckBounds(text); err != nil {
		return fmt.Errorf("%s: not YAML: %w", name, err)
	}
	defer func() {
		if r := recover(); r != nil { // the parser must not take the program down with it
			err = fmt.Errorf("%s: not YAML: %s", name, oneLine(fmt.Sprint(r)))
		}
	}()
	var options []yaml.DecodeOption
	if strict {
		options = append(options, yaml.Strict())
	}
	err = yaml.UnmarshalWithOptions(text, value, options...)
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil && e.GetToken().Position != nil {
		return fmt.Errorf("%s:%d: not YAML of the form: %s", name, e.GetToken().Position.Line, oneLine(e.GetMessage()))
	}
	if err != nil {
		err = fmt.Errorf("%s: not YAML: %s", name, oneLine(err.Error()))
	}
	return err
}

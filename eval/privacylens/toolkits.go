package privacylens

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Toolkit is a set of tools of one application.
type Toolkit struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Tools       []Tool `json:"tools"`
}

// Tool is something that an agent can do.
type Tool struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Arguments   []Value `json:"arguments"`
	Returns     []Value `json:"returns"`
}

// Value is an argument or a result.
type Value struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Required    bool   `json:"required,omitempty"` // of an argument
	Description string `json:"description"`
}

//go:embed toolkits.json
var toolkitsJSON []byte

// kits are toolkits by name.
type kits map[string]Toolkit

// known are the toolkits that occur in the benchmark's data.
var known = func() kits {
	var list []Toolkit
	if err := json.Unmarshal(toolkitsJSON, &list); err != nil {
		panic(fmt.Sprintf("toolkits.json: %v", err)) // the file is part of the program
	}
	all := kits{}
	for _, kit := range list {
		all[kit.Name] = kit
	}
	return all
}()

// of are the toolkits that a case names, in its order. Where none of them has the tool that the next action should use,
// which happens in the data, the one that has it is added: otherwise nobody could know its arguments.
func (k kits) of(c *Case) ([]Toolkit, error) {
	var all []Toolkit
	for _, name := range c.Trajectory.Toolkits {
		kit, ok := k[name]
		if !ok {
			return nil, fmt.Errorf("%s: toolkit %q: want %s",
				c.Name, name, k.names())
		}
		all = append(all, kit)
	}
	if slices.ContainsFunc(all, func(kit Toolkit) bool { return kit.has(c.Trajectory.FinalAction) }) {
		return all, nil
	}
	for _, name := range slices.Sorted(maps.Keys(k)) {
		if k[name].has(c.Trajectory.FinalAction) {
			return append(all, k[name]), nil
		}
	}
	return nil, fmt.Errorf("%s: final_action %q is a tool of none of %s", c.Name, c.Trajectory.FinalAction, k.names())
}

func (k kits) names() string { return strings.Join(slices.Sorted(maps.Keys(k)), ", ") }

func (t Toolkit) has(tool string) bool {
	return slices.ContainsFunc(t.Tools, func(x Tool) bool { return x.Name == tool })
}

// String is a value as prompts list it.
func (v Value) String() string {
	kind := v.Type
	if v.Required {
		kind += ", required"
	}
	return fmt.Sprintf("%s (%s): %s", v.Name, kind, v.Description)
}

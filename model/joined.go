package model

import "strings"

// Joined is the model with one matrix for q, k, v and one for gate, up, as phi has them: fewer and larger products. It is
// for sampling: no file has its weights. An adapter has layers of its own, so that a model with one stays as it is.
func (c *Config) Joined() *Config {
	if c.LoRA != nil {
		return c
	}
	joined := *c
	joined.joined = true
	return &joined
}

func (c *Config) joins() bool { return c.joined || c.phi() }

// JoinedFrom gives for each weight in [Config.Held] of the model's Joined the indices of those whose rows it has.
func (c *Config) JoinedFrom() (from [][]int) {
	at := map[string]int{}
	for i, h := range c.Held() {
		at[h.Name] = i
	}
	for _, h := range c.Joined().Held() {
		var own []int
		for _, name := range partsOf(h.Name) {
			if i, has := at[name]; has {
				own = append(own, i)
			}
		}
		if i, has := at[h.Name]; has {
			own = []int{i}
		}
		from = append(from, own)
	}
	return from
}

// partsOf names the weights that one of a joined model joins.
func partsOf(name string) (parts []string) {
	for _, part := range []string{"q", "k", "v"} {
		parts = append(parts, strings.Replace(name, ".qkv_", "."+part+"_", 1))
	}
	if strings.Contains(name, ".gate_up_") {
		parts = []string{strings.Replace(name, ".gate_up_", ".gate_", 1), strings.Replace(name, ".gate_up_", ".up_", 1)}
	}
	return parts
}

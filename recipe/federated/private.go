package federated

import (
	"fmt"
	"math"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
)

// privacy explains secure sums and noise, "" without.
func (o *Options) privacy() string {
	if !o.Secure {
		return ""
	}
	text := "  secure sums: agents send masked vectors, in fixed point; the server sees the sum of 2 or more agents\n"
	p := o.Privacy
	if p.Clip > 0 {
		text += fmt.Sprintf("  each agent shortens each vector to the norm %v", p.Clip)
		if p.Noise > 0 {
			text += fmt.Sprintf(", and adds noise of deviation %v·%v/√n for n agents in the sum", p.Noise, p.Clip)
		}
		text += "\n"
	}
	if account, ok := o.Account(o.mostSums()); ok && account.Sums > 0 {
		text += fmt.Sprintf("  at the end, %v\n", account)
	}
	return text
}

// mostSums is the largest number of vectors that the run sums, 0: it has no limit of rounds or updates.
func (o *Options) mostSums() int {
	switch {
	case o.Method == protocol.FedNPGADMM:
		return o.Most() * (1 + *o.Inner)
	case o.Method == protocol.FedNPG:
		return o.Most() * (1 + *o.CG.Iters)
	}
	return o.Most()
}

// maskedBytes are the bytes that an agent sends with secure sums: each number of a vector has 8. Those of a line search
// are as without.
func (o *Options) maskedBytes(t federated.Traffic) int64 {
	search := int64(0)
	if o.Method == protocol.FedNPGADMM && *o.LineSearch == "on" {
		search = 2 * federated.Tries
	}
	return 8*(t.Up-search) + int64(o.Width())*search
}

// account says in a line what the sums of a run have revealed, "" without noise.
func (o *Options) account(records []run.Record) string {
	if len(records) == 0 {
		return ""
	}
	last := records[len(records)-1].Values
	account, ok := o.Account(int(math.Round(last["sums"])))
	if !ok {
		return ""
	}
	return fmt.Sprintf("%v. Steps, episodes, returns and validations are not covered.\n", account)
}

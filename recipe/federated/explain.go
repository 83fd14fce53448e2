package federated

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/recipe"
)

// Explain says in plain text what the simulation trains, and how its clock runs. Its lines end in \n.
func (s *Simulation) Explain() string {
	times := s.times()
	text := s.Options.Explain() + fmt.Sprintf("clock: a gradient takes the agents %s virtual seconds; waiting for a "+
		"gradient of any agent: %.4g without rounds, %.4g in rounds, a factor of %.3g\n",
		strings.Trim(strings.ReplaceAll(fmt.Sprintf("%.4g", times), " ", ", "), "[]"), federated.AsyncPerGradient(times),
		federated.SyncPerGradient(times), federated.Speedup(times))
	if s.Compare != none {
		text += fmt.Sprintf("comparison: %s with its own defaults, on as many samples\n", s.Compare)
	}
	return text
}

// explained is what the text of Explain is made of.
type explained struct {
	*Options
	Shared     *OfModel
	Title      string
	D          int               // parameters, 0 where the task cannot be made
	Waits      bool              // the method has rounds
	Late       bool              // whose deadline passes
	Bytes      federated.Traffic // of an agent, in a round or an update
	Revealed   *federated.Account
	Limits     string
	Simulator  string
	Departures string
	Open       string // what the papers leave open
	Ignored    string // keys of the file

	Shrink  float64
	LastTry int
}

//go:embed explain.txt
var explainText string

var explainTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"count": recipe.Count,
	"is":    func(option *string, value string) bool { return option != nil && *option == value },
}).Parse(explainText))

var titles = map[string]string{
	protocol.FedNPGADMM: "FedNPG-ADMM (arXiv 2310.19807), natural gradients without their matrices, in rounds",
	protocol.FedNPG:     "FedNPG by distributed conjugate gradient, the exact baseline of FedNPG-ADMM, in rounds",
	protocol.AFedPG:     "AFedPG (arXiv 2404.08003), asynchronous, with momentum and lookahead at the server",
	protocol.FedPG:      "FedPG, the step of AFedPG on the mean gradient of all agents, in rounds",
	protocol.Vanilla:    "asynchronous policy gradient with momentum: AFedPG without lookahead",
	protocol.A3C:        "A3C (arXiv 1602.01783), every gradient through a shared RMSProp",
	protocol.FedPPO:     "FedPPO, local PPO and the mean of the weights, in rounds",
	protocol.FedAvg:     "FedAvg (arXiv 1602.05629), local training and the mean of the weights by samples, in rounds",
}

// Explain says in plain text what the options train: the algorithm with its numbers, and what it sends.
func (o *Options) Explain() string {
	e := explained{Options: o, Shared: o.ofModel(), Title: titles[o.Method], Waits: !protocol.Asynchronous(o.Method),
		Shrink: federated.Shrink, LastTry: federated.Tries - 1, Limits: o.limits(), Open: o.open(),
		Ignored: strings.Join(o.ignored, ", ")}
	if o.world == nil {
		defer o.Close()
	}
	if t, err := o.task(); err == nil {
		e.D = len(t.Start())
	}
	e.Departures = o.departures()
	if o.Rule != nil && *o.Rule == protocol.AdamW { // nothing is left of the method's own step
		e.Title = o.Method + " with AdamW at the server: a step on the mean gradient of all agents, in rounds"
		if !e.Waits {
			e.Title = o.Method + " with AdamW at the server: asynchronous policy gradient, a step for every gradient"
		}
	}
	e.Late = e.Waits && *o.Deadline > 0
	var sums int
	e.Bytes, sums = o.traffic(e.D)
	if account, ok := o.Account(sums); ok && sums > 0 {
		e.Revealed = &account
	}
	if o.Workload == Control {
		e.Simulator = control.Simulator(o.Control.Environment)
	}
	var text strings.Builder
	if err := explainTemplate.Execute(&text, e); err != nil {
		return err.Error() + "\n"
	}
	return text.String()
}

func (o *Options) limits() string {
	var limits []string
	if most := o.Limit(); most > 0 {
		limits = append(limits, o.count(most))
	}
	if o.Samples > 0 {
		limits = append(limits, fmt.Sprintf("%d samples", o.Samples))
	}
	return strings.Join(limits, " or ")
}

// traffic are the bytes that an agent sends and is sent, and the vectors that the run sums; 0: it has no limit of
// rounds or updates. With secure sums each number of a vector has 8 bytes, and numbers of a line search are as without.
func (o *Options) traffic(d int) (bytes federated.Traffic, sums int) {
	t, search := federated.OneVector(d), int64(0)
	sums = o.Limit()
	switch o.Method {
	case protocol.FedNPGADMM:
		t = federated.FedNPGADMM(d, *o.Inner, *o.LineSearch == "on")
		if sums *= 1 + *o.Inner; *o.LineSearch == "on" {
			search = 2 * federated.Tries
		}
	case protocol.FedNPG:
		t = federated.FedNPGProducts(d, *o.CG.Iters)
		sums *= 1 + *o.CG.Iters
	}
	if bytes = t.Bytes(o.Width()); o.Secure {
		bytes.Up = 8*(t.Up-search) + int64(o.Width())*search
	}
	return bytes, sums
}

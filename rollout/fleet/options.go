package fleet

import (
	"net/url"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Engines of servers, by their protocols. posttrain serve speaks both.
const (
	SGLang = "sglang" // takes whole weights
	VLLM   = "vllm"   // takes adapters
)

// KeyVariable is the environment variable with the key that servers ask for, if they do.
const KeyVariable = "POSTTRAIN_ROLLOUT_KEY"

// Options name the servers. The zero value is no fleet.
type Options struct {
	Engine string   `yaml:"engine,omitempty" want:"|sglang|vllm" words:"sglang, vllm, or nothing to sample here"`
	URLs   []string `yaml:"urls,omitempty" needs:"hosts" words:"addresses of servers, such as http://localhost:30000"`
	Key    string   `yaml:"-"` // secret; may be empty

	// prompts that are drawn from after every swap, to compare the log-probs with the trainer's; nil: no probe
	Probes [][]int32 `yaml:"-"`

	// names a run that only one process works on; what it left when it was killed is removed; "": nothing is
	Run string `yaml:"-"`

	// where weights are written for the servers, which read them by the same path
	Folder string `yaml:"folder,omitempty"`

	Parallel int           `yaml:"parallel,omitempty" want:">=0" zero:"64"` // requests under way at a server
	Timeout  time.Duration `yaml:"timeout,omitempty" want:">=0" zero:"5m"`  // of one try
	Retries  int           `yaml:"-"`                                       // 0: 2; negative: none
	Wait     time.Duration `yaml:"-"`                                       // before the first retry; 0: 1 s
}

const defaultParallel = 64

// Check names what no fleet can be made of.
func (o Options) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(o))
	if o.Engine == "" {
		idle := func(key string, used bool, value any) {
			if used {
				faults.Add(key, value, "no engine samples elsewhere: remove it, or set engine sglang or vllm")
			}
		}
		idle("urls", len(o.URLs) > 0, o.URLs)
		idle("folder", o.Folder != "", o.Folder)
		idle("parallel", o.Parallel > 0, o.Parallel)
		idle("timeout", o.Timeout > 0, o.Timeout)
		return faults
	}
	if len(o.URLs) == 0 {
		faults.Add("urls", o.URLs, "want the address of one server or more")
	}
	seen := map[string]bool{}
	for _, address := range o.URLs {
		u, err := url.Parse(address)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			faults.Add("urls", address, "want an address such as http://localhost:30000")
		case u.User != nil: // it would be in config.yaml
			faults.Add("urls", address, "want an address without a key in it ("+KeyVariable+" has it)")
		case seen[root(address)]:
			faults.Add("urls", address, "the address is there twice")
		}
		seen[root(address)] = true
	}
	return faults
}

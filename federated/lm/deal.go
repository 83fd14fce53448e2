package lm

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// How items are dealt to agents.
const (
	Equal     = "equal"     // in turn
	Dirichlet = "dirichlet" // each class by shares of its own
	Column    = "column"    // each class to one agent
)

// Split says how items are dealt.
type Split struct {
	Kind  string
	Alpha float64 // of Dirichlet: the smaller, the more the agents differ
	Least int     // items that each agent gets at least
	Seed  uint64
}

// Deal gives each of the agents numbers of items, in order; classes has the class of each item. An item has one owner.
func (s Split) Deal(classes []string, agents int) ([][]int, error) {
	if least := max(1, s.Least); len(classes) < agents*least {
		return nil, fmt.Errorf("%d items for %d agents: want at least %d for each", len(classes), agents, least)
	}
	owned := make([][]int, agents)
	switch s.Kind {
	case Equal:
		for i := range classes {
			owned[i%agents] = append(owned[i%agents], i)
		}
		return owned, nil
	case Column:
		return owned, s.dealWhole(classes, owned)
	}
	r := rand.New(rand.NewPCG(s.Seed, 0x6465616c))
	members := membersOf(classes)
	for _, class := range slices.Sorted(maps.Keys(members)) {
		s.dealShares(r, members[class], owned)
	}
	for a := range owned { // items move from the agent with the most to one that has too few
		for len(owned[a]) < s.Least {
			rich := extreme(owned, func(n, of int) bool { return n > of })
			last := len(owned[rich]) - 1
			owned[a], owned[rich] = append(owned[a], owned[rich][last]), owned[rich][:last]
		}
	}
	for _, items := range owned {
		slices.Sort(items)
	}
	return owned, nil
}

// membersOf are the numbers of the items of each class.
func membersOf(classes []string) map[string][]int {
	members := map[string][]int{}
	for i, class := range classes {
		members[class] = append(members[class], i)
	}
	return members
}

// extreme is the first agent whose number of items beats all others.
func extreme(owned [][]int, beats func(n, of int) bool) (best int) {
	for a := range owned {
		if beats(len(owned[a]), len(owned[best])) {
			best = a
		}
	}
	return best
}

// dealWhole deals classes, the largest first, each to the agent with the fewest items.
func (s Split) dealWhole(classes []string, owned [][]int) error {
	members := membersOf(classes)
	order := slices.SortedFunc(maps.Keys(members), func(a, b string) int {
		return cmp.Or(len(members[b])-len(members[a]), cmp.Compare(a, b))
	})
	if len(order) < len(owned) {
		return fmt.Errorf("%d classes for %d agents: want at least one for each", len(order), len(owned))
	}
	for _, class := range order {
		poor := extreme(owned, func(n, of int) bool { return n < of })
		owned[poor] = append(owned[poor], members[class]...)
	}
	for a, items := range owned {
		if slices.Sort(items); len(items) < s.Least {
			return fmt.Errorf("whole classes leave agent %d %d items: want at least %d", a, len(items), s.Least)
		}
	}
	return nil
}

// DealAlike deals other items like those that are dealt: in turn, or of each class to its owners, to each as its share
// of the class (systematic sampling). A class that nobody has goes in turn. An agent may get none.
func (s Split) DealAlike(owned [][]int, classes, others []string) [][]int {
	r, given := rand.New(rand.NewPCG(s.Seed, 0x616c6f6e67)), make([][]int, len(owned))
	owners, members := map[string][]int{}, map[string]int{}
	for agent, items := range owned {
		for _, i := range items {
			owners[classes[i]] = append(owners[classes[i]], agent)
		}
	}
	for _, class := range others {
		members[class]++
	}
	at := map[string]float64{} // of the next item, in shares of its class
	for i, class := range others {
		if _, ok := at[class]; !ok {
			at[class] = r.Float64() / float64(members[class])
		}
		agent, of := i%len(owned), owners[class]
		if s.Kind != Equal && len(of) > 0 {
			agent = of[min(int(at[class]*float64(len(of))), len(of)-1)]
		}
		given[agent] = append(given[agent], i)
		at[class] += 1 / float64(members[class])
	}
	return given
}

// dealShares deals the items of a class (arXiv 1909.06335): the agents' shares are a draw of Dirichlet(α).
func (s Split) dealShares(r *rand.Rand, items []int, owned [][]int) {
	draws, all := make([]float64, len(owned)), 0.0
	for gamma := (distuv.Gamma{Alpha: s.Alpha, Beta: 1, Src: r}); all == 0; { // a small α gives zeros
		for a := range draws {
			draws[a] = gamma.Rand()
			all += draws[a]
		}
	}
	order, total, from := r.Perm(len(items)), 0.0, 0
	for a, draw := range draws {
		total += draw
		to := int(math.Round(total / all * float64(len(items))))
		for _, k := range order[from:to] {
			owned[a] = append(owned[a], items[k])
		}
		from = to
	}
}

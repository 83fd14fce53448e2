package protocol

import "github.com/posttrain/posttrain/federated"

// momentum is the step of AFedPG, vanilla and FedPG, see [federated.AFedPG].
type momentum struct{ server *federated.AFedPG }

func newMomentum(o Options, start []float64) *momentum {
	s := federated.NewAFedPG(start, o.schedule(len(start)))
	s.Vanilla = o.Method == Vanilla
	return &momentum{s}
}

func (m *momentum) theta() []float64 { return m.server.Theta }
func (m *momentum) sent() []float64  { return m.server.Tilde }

// step applies the mean of the gradients; α is that of the oldest.
func (m *momentum) step(gradients [][]float64, versions []int) map[string]float64 {
	oldest, equal := versions[0], make([]float64, len(gradients))
	for i, v := range versions {
		oldest, equal[i] = min(oldest, v), 1
	}
	did := m.server.Step(federated.Mean(equal, gradients), oldest)
	return map[string]float64{"delay": float64(did.Delay), "alpha": did.Alpha, "eta": did.Eta,
		"direction_norm": did.Norm}
}

func (m *momentum) save() map[string][]float64 {
	return map[string][]float64{"theta": m.server.Theta, "tilde": m.server.Tilde, "d": m.server.D}
}

func (m *momentum) load(steps int, vectors map[string][]float64) (err error) {
	m.server.K = steps
	for name, at := range map[string]*[]float64{"theta": &m.server.Theta, "tilde": &m.server.Tilde, "d": &m.server.D} {
		if *at, err = vector(vectors, name); err != nil {
			return err
		}
	}
	return nil
}

// a3c passes every gradient through RMSProp.
type a3c struct{ server *federated.A3C }

func (a *a3c) theta() []float64 { return a.server.Theta }
func (a *a3c) sent() []float64  { return a.server.Theta }

func (a *a3c) step(gradients [][]float64, versions []int) map[string]float64 {
	a.server.Step(gradients[0])
	return map[string]float64{"delay": float64(a.server.K - versions[0])}
}

func (a *a3c) save() map[string][]float64 {
	return map[string][]float64{"theta": a.server.Theta, "square": a.server.Square}
}

func (a *a3c) load(steps int, vectors map[string][]float64) (err error) {
	a.server.K = steps
	if a.server.Theta, err = vector(vectors, "theta"); err != nil {
		return err
	}
	a.server.Square, err = vector(vectors, "square")
	return err
}

// buff is FedBuff: the changes of the weights of a buffer, those made at older weights less.
type buff struct{ server *federated.FedBuff }

func (b *buff) theta() []float64 { return b.server.Theta }
func (b *buff) sent() []float64  { return b.server.Theta }

func (b *buff) step(changes [][]float64, versions []int) map[string]float64 {
	oldest := versions[0]
	for i, change := range changes {
		b.server.Add(change, versions[i])
		oldest = min(oldest, versions[i])
	}
	return map[string]float64{"delay": float64(b.server.K - oldest)}
}

func (b *buff) save() map[string][]float64 { return map[string][]float64{"theta": b.server.Theta} }

func (b *buff) load(steps int, vectors map[string][]float64) (err error) {
	b.server.K = steps
	b.server.Theta, err = vector(vectors, "theta")
	return err
}

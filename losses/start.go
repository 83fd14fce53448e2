package losses

// Tolerances: how far policy and reference may be apart before training, relative to 1 + |logp|. The two
// passes may run in graphs of different shapes, so they need not agree to the bit.
const (
	ToleranceFloat32  = 1e-4
	ToleranceBFloat16 = 2e-2
)

// StepZero is the loss of every pair as long as policy = reference: the log-ratios are 0 then, so that neither the
// reward gap nor label smoothing matters. It is ln 2 for dpo and (1/(2β))² for ipo; known is false for a loss without a
// reference, for one with the chosen response's NLL, and for kto, where it depends on the label.
func (o Options) StepZero() (loss float64, known bool) {
	if o.ReferenceFree() || o.NLL != nil || o.Unpaired() {
		return 0, false
	}
	loss, _ = o.linkOf(-o.offset())
	return loss, true
}

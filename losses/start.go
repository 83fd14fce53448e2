package losses

import (
	"fmt"
	"math"
)

// Tolerances of CheckStart: how far policy and reference may be apart before training, relative to 1 + |logp|. The two
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

// CheckStart checks the first batch of a run before any update: every loss is finite and, if the loss has a reference,
// the policy's log-probabilities equal the reference's. Its error explains the likely cause in one line. Do not call it
// for a resumed run or a run whose reference is another model on purpose. The tolerance is ToleranceFloat32.
func (o Options) CheckStart(b Batch) error { return o.CheckStartWithin(b, ToleranceFloat32) }

// CheckStartWithin is CheckStart with a tolerance, relative to 1 + |logp|.
func (o Options) CheckStartWithin(b Batch, tolerance float64) error {
	out, err := o.Host(b)
	if err != nil {
		return err
	}
	for i, loss := range out.Loss {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return fmt.Errorf("step 0: the loss of pair %d of the first batch is %v, before any update: its "+
				"log p(chosen) is %v and log p(rejected) %v; the model's weights or the reference's log-probabilities "+
				"hold NaN or infinite numbers", i, loss, b.PolicyChosen[i], b.PolicyRejected[i])
		}
	}
	if o.ReferenceFree() {
		return nil
	}
	for i := range out.Loss {
		if err := o.checkPair(b, out, i, tolerance); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) checkPair(b Batch, out Outcome, i int, tolerance float64) error {
	must := ""
	if want, known := o.StepZero(); known {
		must = fmt.Sprintf(", must be %.4f", want)
	}
	for _, side := range []struct {
		name              string
		policy, reference float64
	}{
		{"chosen", b.PolicyChosen[i], b.ReferenceChosen[i]},
		{"rejected", b.PolicyRejected[i], b.ReferenceRejected[i]},
	} {
		if math.Abs(side.policy-side.reference) > tolerance*(1+math.Abs(side.reference)) {
			return fmt.Errorf("step 0: before any update policy and reference must agree, but for pair %d of the "+
				"first batch log p(%s) is %.4f under the policy and %.4f under the reference (%s loss %.4f%s): the "+
				"reference is not the model that training starts from, or its cached log-probabilities are "+
				"stale (other weights, data or limits), or an adapter or dropout is on in one of the two",
				i, side.name, side.policy, side.reference, o.Type, out.Loss[i], must)
		}
	}
	return nil
}

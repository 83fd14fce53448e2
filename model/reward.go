package model

// ToReward is the language model with a head that scores texts in the place of its own, drawn from the seed as
// transformers draws it: normal with standard deviation initializer_range. It shares the other tensors.
func (m *Model) ToReward(seed uint64) *Model {
	c := *m.Config
	c.Reward, c.TieEmbeddings, c.Generation = true, false, nil
	head := newParam(ParamSpec{Name: scoreName, Shape: []int{1, c.HiddenSize}})
	fillNormal(head, c.InitRange, seed)
	n := c.normIndex() + 1
	return &Model{Config: &c, Params: append(m.Params[:n:n], head), files: m.files}
}

package train

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// Learner holds a model's weights in an engine, measures log-probs with them and moves them by gradients. Of a model
// with an adapter it moves the adapter alone.
type Learner struct {
	engine   *backend.Engine
	model    *model.Model     // configuration, names and shapes; its data is where training started
	frozen   []compute.Buffer // weights that do not change, in the type of the products
	store    store            // those that are trained, which come last in the model's order
	programs *backend.Cache
	graph    model.GraphOptions
	updates  int    // how many the moments have seen
	version  int    // how often the weights have changed
	hashed   hashed // of the present weights

	onOne [][2]batch.Layout // what Layout gave on a mesh, with the layout for one device
}

// NewLearner puts a model into an engine.
func NewLearner(e *backend.Engine, m *model.Model, o model.GraphOptions) (*Learner, error) {
	l := &Learner{engine: e, model: m, graph: o}
	err := m.Config.CheckMesh(e.Mesh, e.Shard == backend.ShardMoments)
	if err != nil {
		return nil, err
	}
	u := backend.NewUploader(m.Largest())
	if l.frozen, err = l.uploadParams(u, m.Params[:m.Config.Frozen()]); err != nil {
		return nil, adviseMemory(err)
	}
	if l.store, err = newStore(e, m, u, l.BFloat16()); err != nil {
		backend.FinalizeAll(l.frozen...)
		return nil, adviseMemory(err)
	}
	l.programs = e.NewCache()
	return l, nil
}

// Close gives back everything the engine holds.
func (l *Learner) Close() {
	l.programs.Close()
	l.store.close()
	backend.FinalizeAll(l.frozen...)
}

// Weights are the live weights, as inputs of a program, in the order of the model's parameters. A sampler that reads
// them is never stale.
func (l *Learner) Weights() []compute.Buffer { return slices.Concat(l.frozen, l.store.weights()) }

// Version counts the changes of the weights, for those who keep a copy.
func (l *Learner) Version() int { return l.version }

// Engine is the name of the engine that the learner computes with.
func (l *Learner) Engine() string { return l.engine.Name }

// BFloat16 says whether the learner's graphs compute in bfloat16.
func (l *Learner) BFloat16() bool { return l.graph.DType == dtypes.BFloat16 }

// Wants says how the learner's engine would like to be fed.
func (l *Learner) Wants() backend.Wants { return l.engine.Wants }

// Config is the model's configuration.
func (l *Learner) Config() *model.Config { return l.model.Config }

// Layout says how groups like these, and other sets of the run, are laid out for this engine, pad examples at most in a
// microbatch (batch.Split).
func (l *Learner) Layout(groups []batch.Group, share bool, pad int, others ...[]batch.Group) batch.Layout {
	w := l.engine.Wants
	groups = slices.Concat(append(others, groups)...)
	layout := batch.Layout{Share: share, Pad: pad, Tokens: w.Tokens, Few: min(mostShapes, cmp.Or(w.Shapes, w.LiveGraphs)),
		Blocks: l.Blocks(), Overhead: w.Overhead, Compile: l.compileTokens(), Hidden: l.Config().HiddenSize}
	one := layout
	layout = layout.Fit(groups)
	if n := l.Blocks(); n > 1 {
		one.Tokens, one.Blocks = one.Tokens/n, 1
		l.onOne = append(l.onOne, [2]batch.Layout{layout, one.Fit(groups)})
	}
	return layout
}

// mostShapes is the most shapes of batches in a run. An engine that bounds none has as many as it keeps programs.
const mostShapes = 8

// compileTokens estimates how many tokens take as long as compiling for a shape. Compiling takes longer for more layers,
// a token for more parameters.
func (l *Learner) compileTokens() float64 {
	c := l.Config()
	return l.engine.Wants.Compile * float64(c.Layers) / float64(c.ParamCount())
}

// oneDevice is the layout that one device has in the place of a layout of several.
func (l *Learner) oneDevice(layout batch.Layout) batch.Layout {
	for _, pair := range l.onOne {
		if reflect.DeepEqual(pair[0], layout) {
			return pair[1]
		}
	}
	return layout
}

// Blocks is the number of blocks of rows and slots in a batch: one for each device that rows are cut over.
func (l *Learner) Blocks() int { return l.engine.Devices() }

// Read copies trained weights and moments to the host.
func (l *Learner) Read() (Tensors, int, error) {
	t, err := l.store.read()
	return t, l.updates, err
}

// ReadWeights copies the trained weights to the host.
func (l *Learner) ReadWeights() ([][]float32, error) {
	var all [][]float32
	for i := range l.model.Trained() {
		x, err := l.weight(i)
		if err != nil {
			return nil, err
		}
		if l.engine.Wants.SharedMemory { // x is the store's
			x = slices.Clone(x)
		}
		all = append(all, x)
	}
	return all, nil
}

// weight is a trained weight in float32, in the store's memory or copied.
func (l *Learner) weight(i int) ([]float32, error) {
	if l.engine.Wants.SharedMemory {
		return backend.Floats(l.store.weights()[i])
	}
	return l.store.tensor(theWeights, i)
}

// copyFor copies what a checkpoint holds, or the weights alone, to the host.
func (l *Learner) copyFor(whole bool) (t Tensors, err error) {
	if whole {
		return l.store.read()
	}
	t.Weights, err = l.ReadWeights()
	return t, err
}

// WriteWeights replaces the trained weights. The moments are lost: no update may follow.
func (l *Learner) WriteWeights(weights [][]float32) error {
	return l.replaceWeights(Tensors{Weights: weights})
}

// Size is the number of trained weights: the length of Flat, TakeGradient and WriteFlat.
func (l *Learner) Size() (n int) {
	for _, p := range l.model.Trained() {
		n += p.Size()
	}
	return n
}

// Flat copies the trained weights to the host, one tensor after the other in the model's order.
func (l *Learner) Flat() ([]float32, error) {
	all, err := l.ReadWeights()
	return slices.Concat(all...), err
}

// WriteFlat is WriteWeights of numbers in the order of Flat.
func (l *Learner) WriteFlat(flat []float32) error {
	if n := l.Size(); len(flat) != n {
		return fmt.Errorf("%d weights: want %d, as the model has", len(flat), n)
	}
	var weights [][]float32
	for _, p := range l.model.Trained() {
		weights, flat = append(weights, flat[:p.Size()]), flat[p.Size():]
	}
	return l.WriteWeights(weights)
}

// TakeGradient copies the accumulated gradient to the host in the order of Flat, and clears it: the next Accumulate
// begins at zero.
func (l *Learner) TakeGradient() ([]float32, error) { return l.store.gradient() }

func (l *Learner) replaceWeights(from tensorSource) error {
	l.version, l.hashed = l.version+1, hashed{}
	return l.store.write(from, theWeights)
}

// Write replaces trained weights, moments and the number of updates that the moments have seen. After an error the
// learner can only be closed.
func (l *Learner) Write(t Tensors, updates int) error { return l.replace(t, updates) }

func (l *Learner) replace(from tensorSource, updates int) error {
	l.updates, l.version, l.hashed = updates, l.version+1, hashed{}
	return l.store.write(from, theWeights, firstMoment, secondMoment)
}

// Sums returns the summed log-prob of every answer of a batch, [answers], under the present weights; of a reward model
// the score of the text up to each answer's last token, which is not read.
func (l *Learner) Sums(p *batch.Packed) ([]float32, error) {
	return l.forward("logps", p, func(lp LogProbs) *graph.Node { return lp.Sums })
}

// TokenLogps returns log p(target) of every slot [slots] of a packed batch under weights (nil: the learner's own);
// padding slots hold any finite value. Other weights, such as a reference's, are in the form of Upload.
func (l *Learner) TokenLogps(p *batch.Packed, weights []compute.Buffer) ([]float32, error) {
	if weights != nil {
		other := *l
		other.store = borrowed{l.store, weights}
		l = &other
	}
	return l.forward("tokens", p, func(lp LogProbs) *graph.Node { return lp.Tokens })
}

// Upload copies another model of the learner's shape, such as a reference, into the learner's engine, for TokenLogps:
// of a model with an adapter the adapter alone, since the weights below it are the learner's. The caller finalises the
// buffers. Where the learner computes in bfloat16, matrices are kept so, which gives the same log-probs; norms and
// biases stay float32.
func (l *Learner) Upload(m *model.Model) (weights []compute.Buffer, err error) {
	return l.uploadParams(backend.NewUploader(m.Largest()), m.Trained())
}

// uploadParams copies tensors, one at a time, in the order of [model.Config.Held].
func (l *Learner) uploadParams(u *backend.Uploader, params []*model.Param) (weights []compute.Buffer, err error) {
	var scales []compute.Buffer
	for _, p := range params {
		b, scale, err := l.hold(u, p)
		if err != nil {
			backend.FinalizeAll(slices.Concat(weights, scales)...)
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if weights = append(weights, b); scale != nil {
			scales = append(scales, scale)
		}
	}
	return append(weights, scales...), nil
}

// hold copies a tensor; a quantised one as codes and scales.
func (l *Learner) hold(u *backend.Uploader, p *model.Param) (b, scales compute.Buffer, err error) {
	c := l.model.Config
	if !c.IsQuantized(p.Name, p.Shape) {
		dtype := dtypes.Float32
		if l.BFloat16() && !p.NoDecay {
			dtype = dtypes.BFloat16
		}
		b, err = u.Floats(l.engine.On(nil), dtype, p.Read, p.Shape...)
		return b, nil, err
	}
	at, q := l.engine.On(nil), model.NewQuantized(p.Size())
	if l.engine.Absent() == nil { // else nothing has values
		weights, err := model.NewReader(p.Size()).Read(p)
		if err != nil {
			return nil, nil, err
		}
		q = model.Quantize(weights)
	}
	if b, err = at.Uint8(q.Codes, len(q.Scales), len(q.Codes)/len(q.Scales)); err != nil {
		return nil, nil, err
	}
	if scales, err = at.Float32(q.Scales, len(q.Scales)); err != nil {
		backend.FinalizeAll(b)
	}
	return b, scales, err
}

// forward runs the forward pass of a batch and returns one of its log-probs.
func (l *Learner) forward(name string, p *batch.Packed, which func(LogProbs) *graph.Node) ([]float32, error) {
	if err := l.checkRows(p); err != nil {
		return nil, err
	}
	if half, err := l.halfWeights(); err != nil {
		return nil, err
	} else if half {
		name += " of bfloat16"
	}
	prog, err := l.programs.Program(name+"/"+shapeKey(p), func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{which(l.declare(g, p).logProbs(l, p))}
	})
	if err != nil {
		return nil, err
	}
	out, err := l.run(prog, p, nil)
	if err != nil {
		return nil, err
	}
	return take(out[0])
}

// checkRows refuses a batch that cannot be cut over the devices.
func (l *Learner) checkRows(p *batch.Packed) error {
	if n := l.Blocks(); p.Rows%n != 0 || p.Slots%n != 0 {
		return fmt.Errorf("a batch of %d rows and %d slots: want multiples of engine.devices, %d", p.Rows, p.Slots, n)
	}
	return nil
}

// borrowed is a store of which somebody else's weights are read.
type borrowed struct {
	store
	others []compute.Buffer
}

func (b borrowed) weights() []compute.Buffer { return b.others }

// Accumulate adds the gradient of the objective's loss on a batch, times scale, and returns the loss times scale and
// the objective's other outputs. With scale = 1/(global count) the sum over a step's batches is the mean's gradient.
func (l *Learner) Accumulate(p *batch.Packed, o Objective, inputs []Input, scale float64) (loss float64,
	outputs [][]float32, err error) {
	if err := l.checkRows(p); err != nil {
		return 0, nil, err
	}
	sums, keep, err := l.store.sums()
	if err != nil {
		return 0, nil, adviseMemory(err)
	}
	prog, err := l.gradientProgram(p, o, inputs, len(sums))
	if err != nil {
		return 0, nil, adviseMemory(err)
	}
	own := []Input{{[]float32{float32(scale)}, []int{1}}}
	if sums != nil {
		own = append(own, Input{[]float32{float32(float.Indicator(keep))}, []int{1}})
	}
	out, err := l.run(prog, p, sums, append(own, inputs...)...)
	if err != nil {
		return 0, nil, err
	}
	return l.collect(p, out)
}

// gradientProgram is the program of Accumulate, which adds to this number of sums.
func (l *Learner) gradientProgram(p *batch.Packed, o Objective, inputs []Input, sums int) (*backend.Program, error) {
	return l.programs.Program("gradient/"+o.Key()+"/"+shapeKey(p), func(g *graph.Graph) []*graph.Node {
		return l.gradient(g, p, o, inputs, sums > 0)
	}, backend.DonateLast(sums), backend.CutLast(l.cutState()...))
}

// cutState says how the gradients are cut over the engine's mesh; nil without a mesh.
func (l *Learner) cutState() (specs []*distributed.ShardingSpec) {
	if l.engine.Mesh == nil {
		return nil
	}
	for _, p := range l.model.Trained() {
		specs = append(specs, cutState(l.engine, p))
	}
	return specs
}

// Update applies the optimiser to the accumulated gradient and clears it. A norm that is not finite leaves the weights
// as they were.
func (l *Learner) Update(optimizer AdamW, rate float64) (norm float64, err error) {
	norm, err = l.store.update(optimizer, l.updates+1, rate)
	l.updates, l.version, l.hashed = l.updates+1, l.version+1, hashed{}
	return norm, adviseMemory(err)
}

// gradient builds loss, the objective's outputs, the parameters' gradients and, where rows are looked up on the host,
// the rows' gradients. With add, the parameters' gradients are added to the gradients of the batches before.
func (l *Learner) gradient(g *graph.Graph, p *batch.Packed, o Objective, inputs []Input, add bool) []*graph.Node {
	d := l.declare(g, p)
	for i := len(l.frozen); i < len(d.params); i++ {
		d.params[i] = float32s(d.params[i]) // a copy in bfloat16 has a gradient in float32, too
	}
	scale := graph.Reshape(graph.Parameter(g, "scale", shapeFloat32(1)))
	var keep *graph.Node
	if add {
		keep = graph.GreaterThan(graph.Parameter(g, "keep", shapeFloat32(1)), graph.ScalarZero(g, dtypes.Float32))
	}
	var extra []*graph.Node
	for i, in := range inputs {
		extra = append(extra, graph.Parameter(g, fmt.Sprintf("input%d", i), shapeFloat32(in.Dims...)))
	}
	loss, outputs := o.Loss(d.logProbs(l, p), extra)
	loss = graph.Mul(loss, scale)
	grads := graph.Gradient(loss, l.gradientNodes(d)...)
	if add {
		for i, p := range l.model.Trained() {
			sum := graph.ShardedParameter(g, "sum/"+p.Name, shapeFloat32(p.Shape...), cutState(l.engine, p))
			grads[i] = graph.Add(graph.Where(graph.Reshape(keep), sum, graph.ZerosLike(sum)), grads[i])
		}
	}
	return slices.Concat([]*graph.Node{loss}, outputs, grads)
}

// gradientNodes lists what gradients are asked for: every trained parameter that the graph uses, then the rows.
func (l *Learner) gradientNodes(d declared) []*graph.Node {
	var nodes []*graph.Node
	for _, i := range l.usedParams() {
		nodes = append(nodes, d.params[len(l.frozen)+i])
	}
	if l.trainsRows() {
		nodes = append(nodes, d.in.EmbedRows)
	}
	if l.trainsRows() && d.in.TargetRows != nil {
		nodes = append(nodes, d.in.TargetRows)
	}
	return nodes
}

// trainsRows says that rows which the host looks up have gradients: with an adapter they are frozen.
func (l *Learner) trainsRows() bool { return l.engine.Wants.HostRows && l.model.Config.LoRA == nil }

// usedParams lists the trained parameters that the graph uses as a whole: an untied embedding table that is looked up
// on the host does not occur in it.
func (l *Learner) usedParams() (params []int) {
	m := l.model
	for i := range m.Trained() {
		if !l.trainsRows() || i != m.EmbedTable() || m.EmbedTable() == m.HeadTable() {
			params = append(params, i)
		}
	}
	return params
}

// collect takes a gradient program's outputs apart.
func (l *Learner) collect(p *batch.Packed, out []compute.Buffer) (loss float64, outputs [][]float32, err error) {
	first := len(out) - len(l.usedParams())
	if l.trainsRows() {
		first -= len(l.rowTables(p))
	}
	if loss, err = scalar(out[0]); err != nil {
		return 0, nil, err
	}
	for _, b := range out[1:first] {
		x, err := take(b)
		if err != nil {
			return 0, nil, err
		}
		outputs = append(outputs, x)
	}
	return loss, outputs, l.keep(p, out[first:])
}

// keep hands gradients to the store.
func (l *Learner) keep(p *batch.Packed, out []compute.Buffer) error {
	grads, used := make([]compute.Buffer, len(l.model.Trained())), l.usedParams()
	for k, i := range used {
		grads[i] = out[k]
	}
	if err := l.store.add(grads); err != nil || !l.trainsRows() {
		return err
	}
	for i, table := range l.rowTables(p) {
		rows, err := take(out[len(used)+i])
		if err != nil {
			return err
		}
		l.store.addRows(table.param, table.ids, rows)
	}
	return nil
}

// rowTable is a table whose rows the host looks up, by their ids.
type rowTable struct {
	param int
	ids   []int32
}

// rowTables are the tables of a batch: the embedding's, and the head's unless it gives scores.
func (l *Learner) rowTables(p *batch.Packed) []rowTable {
	tables := []rowTable{{l.model.EmbedTable(), p.Tokens}, {l.model.HeadTable(), p.Target}}
	if l.model.Config.Reward {
		return tables[:1]
	}
	return tables
}

// declared are the parameters of a program.
type declared struct {
	params []*graph.Node
	in     model.Inputs
	answer *graph.Node
}

// halfWeights says whether the matrices of the store are in bfloat16, as Upload may leave them.
func (l *Learner) halfWeights() (bool, error) {
	if !l.BFloat16() {
		return false, nil
	}
	dtype, err := dtypeOf(l.store.weights()[0]) // a matrix
	return dtype == dtypes.BFloat16, err
}

// declare makes a program's parameters: weights, the batch, its answers.
func (l *Learner) declare(g *graph.Graph, p *batch.Packed) declared {
	d := declared{
		params: l.declareWeights(g),
		in:     l.model.Config.Inputs(g, p.Rows, p.Len, p.Slots, l.engine.Wants.HostRows),
		answer: model.RowsParameter(g, "answer", shapeInt32(p.Slots)),
	}
	d.in.Blocks = p.Blocks
	return d
}

func (l *Learner) declareWeights(g *graph.Graph) (nodes []*graph.Node) {
	half, _ := l.halfWeights()
	for i, h := range l.model.Config.Held() {
		dtype := dtypes.Float32
		if half || l.BFloat16() && i < len(l.frozen) {
			dtype = dtypes.BFloat16
		}
		nodes = append(nodes, graph.Parameter(g, h.Name, shapes.Make(h.Type(dtype), h.Shape...)))
	}
	return nodes
}

func (d declared) logProbs(l *Learner, p *batch.Packed) LogProbs {
	c := l.model.Config
	if c.Reward {
		return gatherLogProbs(c.Scores(d.params, d.in, l.graph), d.answer, p.Answers)
	}
	return gatherLogProbs(c.LogProbs(d.params, d.in, l.graph), d.answer, p.Answers)
}

// run runs a program on the weights, a batch, further inputs and the gradients so far.
func (l *Learner) run(program *backend.Program, p *batch.Packed, sums []compute.Buffer, extra ...Input) (
	[]compute.Buffer, error) {
	fed, err := l.feed(p, extra...)
	defer backend.FinalizeAll(fed...)
	if err != nil {
		return nil, err
	}
	out, err := program.Run(slices.Concat(l.frozen, l.store.weights(), fed, sums), nil)
	return out, adviseMemory(err)
}

// adviseMemory adds to the error of a full device what needs less memory.
func adviseMemory(err error) error {
	if !errors.Is(err, backend.ErrMemory) {
		return err
	}
	return fmt.Errorf("%w: lower train.micro_batch_size or the length of the data's rows, or set "+
		"train.gradient_checkpointing: true or train.moments: bfloat16", err)
}

// feed makes the buffers of a batch, in the order of declare, and of further inputs.
func (l *Learner) feed(p *batch.Packed, extra ...Input) (fed []compute.Buffer, err error) {
	put := func(b compute.Buffer, e error) { fed, err = append(fed, b), cmp.Or(err, e) }
	rows := l.engine.On(model.CutRows(l.engine.Mesh))
	for _, x := range [][]int32{p.Positions, p.Groups, p.Segments} {
		put(rows.Int32(x, p.Rows, p.Len))
	}
	put(rows.Int32(p.Source, p.Slots))
	put(rows.Int32(p.Inverse, p.Rows*p.Len))
	reward, answer := l.model.Config.Reward, p.Answer
	if reward {
		answer = p.Ends()
	}
	switch {
	case l.engine.Wants.HostRows:
		for _, t := range l.rowTables(p) {
			put(l.rows(t.param, t.ids))
		}
	case reward:
		put(rows.Int32(p.Tokens, p.Rows, p.Len))
	default:
		put(rows.Int32(p.Tokens, p.Rows, p.Len))
		put(rows.Int32(p.Target, p.Slots))
	}
	put(rows.Int32(answer, p.Slots))
	for _, x := range extra {
		put(l.engine.Float32(x.Data, x.Dims...))
	}
	return fed, err
}

// rows copies rows of a table into a new buffer [len(ids), width].
func (l *Learner) rows(table int, ids []int32) (compute.Buffer, error) {
	w := l.model.Params[table].Shape[1]
	from, err := backend.Floats(l.Weights()[table])
	if err != nil {
		return nil, err
	}
	b, to, err := l.engine.SharedFloat32(len(ids), w)
	if err != nil {
		return nil, err
	}
	for k, id := range ids {
		copy(to[k*w:][:w], from[int(id)*w:][:w])
	}
	return b, nil
}

// shapeKey names what a compiled program depends on.
func shapeKey(p *batch.Packed) string {
	key := fmt.Sprintf("%dx%d/%d/%d", p.Rows, p.Len, p.Slots, p.Answers)
	if p.Blocks > 1 {
		key += fmt.Sprintf("/%d", p.Blocks)
	}
	return key
}

// take copies a float32 output to the host and gives its buffer back.
func take(b compute.Buffer) ([]float32, error) {
	defer backend.FinalizeAll(b)
	x, err := backend.Floats(b)
	return slices.Clone(x), err
}

func shapeInt32(dims ...int) shapes.Shape   { return shapes.Make(dtypes.Int32, dims...) }
func shapeFloat32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }

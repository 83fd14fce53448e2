package backend

// This file says what engines take for their programs beside the inputs. The factors were fitted to the peaks of runs
// on this machine's engines; docs/runs.md says how near they come to others.

// Use is a program of a run.
type Use struct {
	Sketch
	Runs float64
}

// Needs are bytes that an engine takes beside a program's inputs.
type Needs struct {
	Programs int // values of programs, and what they keep between runs
	Stays    int // of Programs, what is not given back between two steps
	Engine   int // its compiler and code, and memory that it has not given back yet
}

// Needs says what the programs of a run take on this engine, where state has the bytes of weights, moments, gradients
// and a reference, and gradients are those among them.
func (e *Engine) Needs(state, gradients int, uses []Use) (n Needs) {
	switch {
	case e.Wants.Collected:
		garbage := 0 // what programs leave to the collector in all
		for _, u := range uses {
			garbage += int(goGarbage * u.Runs * float64(u.Written))
		}
		n.Programs = largest(uses, func(u Use) int { return u.Alive })
		n.Stays = n.Programs                                // in the engine's pools of buffers
		n.Engine = goFloor + min(state+n.Programs, garbage) // the collector lets the heap double at most
	case e.Wants.SharedMemory:
		n.Programs = largest(uses, func(u Use) int { return int(onnxAlive * float64(u.Alive)) })
		n.Programs = max(0, n.Programs-gradients/2) // half are a microbatch's, which are outputs
		n.Engine = onnxProgram * min(len(uses), e.Wants.LiveGraphs)
	default:
		n.Programs = largest(uses, e.fused)
		n.Engine = xlaFloor + largest(uses, e.code)
	}
	return n
}

// widens says that the engine computes some values of 16 bits in float32.
func (e *Engine) widens(u Use) bool { return e.Wants.Widens && u.Wide > 0 }

// fused are the bytes of a program's values on XLA. A plugin that computes 16 bits in float32 keeps a product beside
// what it is rounded to.
func (e *Engine) fused(u Use) int {
	if e.widens(u) {
		return int(xlaRounded * float64(u.Wide))
	}
	return u.Fused
}

// code is what XLA keeps of a compiled program, which is more where it rounds.
func (e *Engine) code(u Use) int {
	if e.widens(u) {
		return xlaRounding * u.Nodes
	}
	return xlaKernel * u.Kernels
}

// StepBytes is what the engine keeps of a program that is as small as a step of sampling.
func (e *Engine) StepBytes() int {
	switch {
	case e.Wants.Collected:
		return 0
	case e.Wants.SharedMemory:
		return onnxStep
	}
	return xlaStep
}

const (
	goFloor = 25e6
	// of the bytes that a program writes: buffers are used again, but for panels of products and what pools drop
	goGarbage = 0.024
	xlaFloor  = 240e6
	// bytes of the code of a kernel (products are calls of a library), and of an operation in 16 bits that the plugin
	// computes in float32
	xlaKernel, xlaRounding = 600e3, 130e3
	// of the bytes in float32, by the buffers that XLA assigns to the gradients of two models in bfloat16: 882 of 633
	// MB, and 4,641 of 3,364
	xlaRounded = 1.39
	// what ONNX Runtime keeps of each program, and of the bytes alive
	onnxProgram = 26e6
	onnxAlive   = 1.5
	// of a program of sampling
	xlaStep, onnxStep = 25e6, 30e6
)

func largest(uses []Use, of func(Use) int) (most int) {
	for _, u := range uses {
		most = max(most, of(u))
	}
	return most
}

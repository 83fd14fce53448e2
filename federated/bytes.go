package federated

// Traffic counts the numbers that one agent sends and is sent in a round, or for one gradient of an asynchronous
// method. Headers come on top.
type Traffic struct{ Up, Down int64 }

// Bytes is the traffic in bytes for numbers of width bytes.
func (t Traffic) Bytes(width int) Traffic { return Traffic{t.Up * int64(width), t.Down * int64(width)} }

// OneVector is the traffic of every method that sends one vector each way: AFedPG, its vanilla form and A3C per
// gradient; FedPG, FedPPO and FedAvg per round.
func OneVector(d int) Traffic { return Traffic{int64(d), int64(d)} }

// FedNPGProducts is the traffic of FedNPG by conjugate gradient over all agents: the gradient and a product an
// iteration up, the parameters and a direction an iteration down.
func FedNPGProducts(d, iterations int) Traffic {
	return Traffic{int64(iterations+1) * int64(d), int64(iterations+1) * int64(d)}
}

// FedNPGADMM is the traffic of FedNPG-ADMM: g and one u_i per inner round up, θ and one y per inner round down, and
// with a line search 20 numbers up. The line search needs the y that the next round starts from, which is counted once.
func FedNPGADMM(d, inner int, search bool) Traffic {
	t := Traffic{int64(inner+1) * int64(d), int64(inner+1) * int64(d)}
	if search {
		t.Up += 2 * Tries
	}
	return t
}

package eval

// Published is a row of the MaPPO paper (arXiv:2507.21183): what Qwen2.5-7B-Instruct reaches, before and after training.
type Published struct {
	Method                         string
	AlpacaEval, ArenaHard, MTBench float64
}

// PublishedModel is the model of the rows in PublishedRows.
const PublishedModel = "Qwen2.5-7B-Instruct"

// PublishedRows are those of one model, for beside our own.
var PublishedRows = []Published{
	{"untrained", 27.03, 42.9, 8.61},
	{"DPO", 32.01, 45.5, 8.56}, {"DPO + MaPPO", 38.24, 59.2, 8.79},
	{"SimPO", 25.15, 64.2, 9.02}, {"SimPO + MaPPO", 32.75, 69.5, 8.94},
	{"IPO", 27.76, 53.0, 8.83}, {"IPO + MaPPO", 28.84, 64.4, 8.84},
	{"CPO", 32.94, 47.6, 8.62}, {"CPO + MaPPO", 33.71, 54.1, 8.68},
}

package jinja

import (
	"cmp"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// A whole number is an int where 64 bits hold it, and a *big.Int beyond. Both bounds are on what a template may make:
// Python itself reads and prints no more digits.
const (
	maxBits   = 1 << 16
	maxDigits = 4300
)

// wide is a boolean or whole number.
func wide(v any) *big.Int {
	if n, ok := v.(*big.Int); ok {
		return n
	}
	return big.NewInt(int64(toInt(v)))
}

func narrow(n *big.Int) any {
	if n.BitLen() > maxBits {
		panic(tooWide())
	}
	if n.IsInt64() {
		return int(n.Int64())
	}
	return n
}

func tooWide() fault { return faultf("result of more than %d bits", maxBits) }

// toNumber gives a boolean or number as a float64 and says whether it is whole.
func toNumber(v any) (f float64, whole, ok bool) {
	switch v := v.(type) {
	case bool:
		return float64(btoi(v)), true, true
	case int:
		return float64(v), true, true
	case *big.Int:
		f, _ := v.Float64()
		return f, true, true
	case float64:
		return v, false, true
	}
	return 0, false, false
}

// toInt is the int that a boolean or whole number is, or the nearest one.
func toInt(v any) int {
	switch v := v.(type) {
	case bool:
		return btoi(v)
	case int:
		return v
	case *big.Int:
		if v.Sign() > 0 {
			return math.MaxInt
		}
		return math.MinInt
	}
	return 0
}

// float is a number as a float; Python refuses a whole one that is too large.
func float(v any) float64 {
	f, whole, _ := toNumber(v)
	if whole && math.IsInf(f, 0) {
		panic(faultf("int too large to convert to float"))
	}
	return f
}

func isWhole(v any) bool { _, whole, _ := toNumber(v); return whole }

func isBig(v any) bool { return is[*big.Int](v) }

var (
	numerals = regexp.MustCompile(`^([-+]?)(0[xXoObB]_?)?([0-9a-zA-Z]+(?:_[0-9a-zA-Z]+)*)$`)
	decimals = regexp.MustCompile(`^[-+]?(?i:inf|infinity|nan|` +
		`(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)(e[-+]?\d+(_\d+)*)?)$`)
	bases = map[byte]int{'x': 16, 'o': 8, 'b': 2}
)

// readInt is Python's int(text, base).
func readInt(text string, base int) (any, bool) {
	if text = strings.TrimFunc(text, isSpace); len(text) > maxBits {
		return nil, false
	}
	m := numerals.FindStringSubmatch(text)
	if m == nil || base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	digits := m[2] + m[3]
	if m[2] != "" {
		if own := bases[m[2][1]|0x20]; base == 0 || base == own {
			base, digits = own, m[3]
		}
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if base == 0 {
		if base = 10; digits[0] == '0' && strings.Trim(digits, "0") != "" {
			return nil, false
		}
	}
	if n, err := strconv.ParseInt(m[1]+digits, base, 0); err == nil {
		return int(n), true
	}
	if len(digits) > maxDigits {
		return nil, false
	}
	n, ok := new(big.Int).SetString(m[1]+digits, base)
	if !ok {
		return nil, false
	}
	return narrow(n), true
}

// readFloat is Python's float(text).
func readFloat(text string) (float64, bool) {
	text = strings.TrimFunc(text, isSpace)
	if len(text) > maxBits || !decimals.MatchString(text) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64) // beyond the range it is infinite
	return f, true
}

func reprInt(v any) string {
	n, ok := v.(*big.Int)
	if !ok {
		return strconv.Itoa(toInt(v))
	}
	text := n.String()
	if len(text) > maxDigits {
		panic(faultf("int of more than %d digits", maxDigits))
	}
	return text
}

// orderNumbers compares exactly; no operand is NaN.
func orderNumbers(a, b any) int {
	x, wholeX, _ := toNumber(a)
	y, wholeY, _ := toNumber(b)
	const exact = 1 << 53
	switch {
	case wholeX && wholeY && !isBig(a) && !isBig(b):
		return cmp.Compare(toInt(a), toInt(b))
	case wholeX && wholeY:
		return wide(a).Cmp(wide(b))
	case wholeX == wholeY || math.Abs(x) < exact && math.Abs(y) < exact:
		return cmp.Compare(x, y)
	case wholeX:
		return new(big.Float).SetInt(wide(a)).Cmp(big.NewFloat(y))
	}
	return -orderNumbers(b, a)
}

func isNaN(v any) bool { f, ok := v.(float64); return ok && math.IsNaN(f) }

func sign(v any, by string) any {
	_, whole, ok := toNumber(v)
	times := 1 - 2*btoi(by == "-")
	switch {
	case !ok:
		panic(faultf("cannot put a sign before %s", kindOf(v)))
	case whole:
		return narrow(new(big.Int).Mul(big.NewInt(int64(times)), wide(v)))
	}
	return float64(times) * v.(float64)
}

// arithmetic is a op b of two numbers.
func arithmetic(op string, a, b any) any {
	if !isWhole(a) || !isWhole(b) {
		return floatOp(op, float(a), float(b))
	}
	x, y, z := wide(a), wide(b), new(big.Int)
	switch {
	case y.Sign() == 0 && (op == "/" || op == "//" || op == "%"):
		panic(faultf("%s %s 0: division by zero", reprInt(a), op))
	case op == "**" && y.Sign() < 0:
		return floatOp(op, float(a), float(b))
	case op == "**" && x.CmpAbs(big.NewInt(1)) > 0 && float64(x.BitLen())*float(b) > 2*maxBits:
		panic(tooWide())
	case op == "/":
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			panic(faultf("the quotient is too large for a float"))
		}
		return f
	case op == "//" || op == "%":
		rest := new(big.Int)
		if z.QuoRem(x, y, rest); rest.Sign() != 0 && rest.Sign() != y.Sign() { // Python rounds down
			z.Sub(z, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			z = rest
		}
		return narrow(z)
	}
	return narrow(exact[op](z, x, y))
}

var exact = map[string]func(z, x, y *big.Int) *big.Int{
	"+": (*big.Int).Add, "-": (*big.Int).Sub, "*": (*big.Int).Mul,
	"**": func(z, x, y *big.Int) *big.Int { return z.Exp(x, y, nil) },
}

func floatOp(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		return power(a, b)
	}
	if b == 0 {
		panic(faultf("%s %s 0: division by zero", reprFloat(a), op))
	}
	if op == "/" {
		return a / b
	}
	rest := math.Mod(a, b)
	if rest != 0 && (rest < 0) != (b < 0) {
		rest += b
	}
	if op == "%" {
		return math.Copysign(rest, b)
	}
	quotient := (a - rest) / b
	whole := math.Floor(quotient)
	return whole + float64(btoi(quotient-whole > 0.5))
}

func power(a, b float64) float64 {
	f := math.Pow(a, b)
	infinite := math.IsInf(a, 0) || math.IsInf(b, 0)
	if a == 0 && b < 0 || math.IsInf(f, 0) && !infinite || math.IsNaN(f) && !math.IsNaN(a) && !math.IsNaN(b) {
		panic(faultf("%s ** %s: no float", reprFloat(a), reprFloat(b)))
	}
	return f
}

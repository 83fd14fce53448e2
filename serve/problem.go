package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// problem is an error as OpenAI's protocol words it.
type problem struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the field that is at fault
	Code    *string `json:"code"`

	retry time.Duration // when to come again; 0: not said
}

func (p *problem) Error() string { return p.Message }

// Types of problems.
const (
	invalidRequest = "invalid_request_error"
	rateLimit      = "rate_limit_error"
	serverError    = "server_error"
)

// refuse names the field of a request that is at fault; "" where it is none.
func refuse(field, format string, args ...any) *problem {
	p := &problem{status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: invalidRequest}
	if field != "" {
		p.Param = &field
		p.Message = field + ": " + p.Message
	}
	return p
}

// other is a problem that is no field's.
func other(status int, kind, code, format string, args ...any) *problem {
	return &problem{status: status, Message: fmt.Sprintf(format, args...), Type: kind, Code: &code}
}

// coded gives a problem a code.
func (p *problem) coded(code string) *problem {
	p.Code = &code
	return p
}

// write sends a problem.
func (p *problem) write(w http.ResponseWriter) {
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.retry+time.Second-1)/time.Second)))
	}
	writeJSON(w, p.status, p.body())
}

// log is what the log says: nothing of what the client sent.
func (p *problem) log() string {
	text := strconv.Itoa(p.status)
	for _, part := range []*string{p.Param, p.Code} {
		if part != nil {
			text += " " + strconv.Quote(short([]byte(*part)))
		}
	}
	return text
}

func (p *problem) body() any {
	return struct {
		Error *problem `json:"error"`
	}{p}
}

// writeJSON sends a value. What cannot be sent is lost: nobody is there to be told.
func writeJSON(w http.ResponseWriter, status int, value any) {
	text, err := marshal(value)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"the reply cannot be written","type":"server_error","param":null,"code":null}}`+"\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(text)
}

// marshal writes a value as a line of JSON, < and > as they are: texts of models are full of them.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

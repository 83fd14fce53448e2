package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// problem is an error in OpenAI's format.
type problem struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the field at fault
	Code    *string `json:"code"`

	retry time.Duration // when to try again; 0: not sent
}

const invalidRequest = "invalid_request_error"

// refuse reports a fault of a field, or of the whole request if field is "".
func refuse(field, format string, args ...any) *problem {
	p := &problem{status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: invalidRequest}
	if field != "" {
		p.Param = &field
		p.Message = field + ": " + p.Message
	}
	return p
}

// newProblem reports anything else; the type follows from the status.
func newProblem(status int, code, format string, args ...any) *problem {
	kind := invalidRequest
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	return &problem{status: status, Message: fmt.Sprintf(format, args...), Type: kind, Code: &code}
}

func (p *problem) withCode(code string) *problem {
	p.Code = &code
	return p
}

func (p *problem) write(w http.ResponseWriter) {
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.retry+time.Second-1)/time.Second)))
	}
	writeJSON(w, p.status, p.body())
}

// log returns the log's text, without anything the client sent.
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

// writeJSON sends a value. It fails if the client has gone.
func writeJSON(w http.ResponseWriter, status int, value any) error {
	text, err := marshal(value)
	if err != nil {
		status = http.StatusInternalServerError
		text = []byte(`{"error":{"message":"the reply cannot be written","type":"server_error",` +
			`"param":null,"code":null}}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(text))) // so that a reply that breaks off is noticed
	w.WriteHeader(status)
	_, err = w.Write(text)
	return err
}

// marshal writes a line of JSON and leaves < and > as they are: models' texts are full of them.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

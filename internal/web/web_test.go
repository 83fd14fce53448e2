package web

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const key = "sk-0123456789abcdefghij"

// request has a key in each header that may have one.
func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Api-Key", key)
	return req
}

// TestRedirects: without Follow a redirect is the reply; with it the key goes to no other port, and the head of a file
// stays where it is.
func TestRedirects(t *testing.T) {
	var got []string
	note := func(r *http.Request) {
		got = append(got, fmt.Sprint(r.Method, r.URL.Path, r.Header["Authorization"], r.Header["Api-Key"]))
	}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { note(r) }))
	defer store.Close()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		to := map[string]string{"/here": "/there", "/loop": "/loop"}[r.URL.Path]
		if to == "" && r.URL.Path != "/there" {
			to = store.URL + "/store"
		}
		if to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	}))
	defer front.Close()
	keys := "[Bearer " + key + "] [" + key + "]"
	for _, c := range []struct {
		follow       bool
		method, path string
		want         string
		status       int
	}{
		{false, "GET", "/away", "GET/away" + keys, 307},
		{false, "POST", "/here", "POST/here" + keys, 307},
		{true, "GET", "/here", "GET/here" + keys + " GET/there" + keys, 200},
		{true, "GET", "/away", "GET/away" + keys + " GET/store[] []", 200},
		{true, "HEAD", "/away", "HEAD/away" + keys, 307},
		{true, "GET", "/loop", strings.TrimSpace(strings.Repeat("GET/loop"+keys+" ", 10)), 0},
	} {
		got = nil
		client := New(Options{Follow: c.follow})
		resp, err := client.Do(request(t, c.method, front.URL+c.path))
		status := 0
		if err == nil {
			status = resp.StatusCode
			resp.Body.Close()
		}
		if text := strings.Join(got, " "); text != c.want || status != c.status {
			t.Errorf("%v %s%s: %s, %d, %v\nwant %s", c.follow, c.method, c.path, text, status, err, c.want)
		}
		client.CloseIdleConnections()
	}
}

// raw is a server that answers each connection with a text.
func raw(t *testing.T, reply string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, reply)
			conn.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestRepeatedKeys: what a server repeats of a key is in no status, header and error; the body is the caller's.
func TestRepeatedKeys(t *testing.T) {
	const password = "a-password-of-16"
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	for _, secret := range []string{key, password, basic} {
		for _, reply := range []string{
			"HTTP/1.1 400 no " + secret + "\r\nEtag: \"" + secret + "\"\r\nContent-Length: 2\r\n\r\nno",
			"HTTP/1.1 " + secret + "\r\n\r\n", secret + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + secret + "\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + secret + "\r\n",
		} {
			req := request(t, "GET", raw(t, reply))
			if secret != key {
				req.SetBasicAuth("me", password)
			}
			client := New(Options{})
			resp, err := client.Do(req)
			said := fmt.Sprint(err)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				said = fmt.Sprint(resp.Status, resp.Header, err)
			}
			if strings.Contains(said, secret) {
				t.Errorf("%q: %s", reply, said)
			}
			client.CloseIdleConnections()
		}
	}
}

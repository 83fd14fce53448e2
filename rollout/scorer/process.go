package scorer

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// lingering is how long a program that has ended may keep its input open, by a child that is in no group of its.
const lingering = time.Second

// execute runs a program of the user to its end. Its children end with it. What one of them that has
// left its group keeps open costs no time: the program's own output is whole when it ends.
func execute(cmd *exec.Cmd, out, complaints io.Writer) error {
	cmd.WaitDelay = lingering
	lead(cmd)
	var streams []*stream
	defer func() {
		for _, s := range streams {
			s.finish()
		}
	}()
	for _, to := range []io.Writer{out, complaints} {
		s, err := openStream(to)
		if err != nil {
			return err
		}
		defer s.end.Close()
		streams = append(streams, s)
	}
	cmd.Stdout, cmd.Stderr = streams[0].end, streams[1].end
	err := cmd.Run()
	endGroup(cmd)
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return err
}

// stream is what a program writes.
type stream struct {
	from, end *os.File // of a pipe: the program has the end
	to        io.Writer
	read      chan struct{} // closed when nothing more comes
}

// openStream begins to read a stream.
func openStream(to io.Writer) (*stream, error) {
	s := &stream{to: to, read: make(chan struct{})}
	var err error
	if s.from, s.end, err = os.Pipe(); err != nil {
		return nil, err
	}
	go func() {
		io.Copy(s.to, s.from) // an error is an end
		close(s.read)
	}()
	return s, nil
}
